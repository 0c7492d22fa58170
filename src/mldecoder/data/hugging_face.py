"""Hugging Face datasets: ``hf:NAME`` from the hub or a folder, or a folder written by ``save_to_disk``."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from PIL import Image

from mldecoder.data.cells import guess_separator, label_order, split_labels
from mldecoder.data.columns import MANY, ONE
from mldecoder.data.dataset import Dataset, ImageSet, Targets, Task, describe
from mldecoder.data.layout import Part, choose_val, labelled_only, note_unlabelled, part_of
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError

__all__ = ["Column", "find", "read", "read_name"]


class Column:
    """The picture column of a Hugging Face dataset."""

    def __init__(self, data: Any, column: str, part: str) -> None:  # noqa: ANN401 - datasets has no types
        self.data, self.column, self.part = data, column, part

    def __len__(self) -> int:
        return len(self.data)

    def name(self, i: int) -> str:
        """The path that the dataset keeps, or the part and the number."""
        path = self.data[i][self.column].get("path")
        return str(path) if path else f"{self.part}/{i}"

    def read(self, i: int) -> bytes | Image.Image:
        """The bytes that the dataset keeps, or those of the file it names."""
        cell = self.data[i][self.column]
        if cell.get("bytes") is not None:
            return bytes(cell["bytes"])
        try:
            return Path(cell["path"]).read_bytes()
        except OSError:
            raise DataError(f"{self.name(i)}: the file is missing.") from None


def find(path: Path) -> str | None:
    """What marks the path as saved by ``save_to_disk``, if anything does."""
    if (path / "dataset_dict.json").is_file():
        return "dataset_dict.json"
    return "dataset_info.json" if (path / "dataset_info.json").is_file() and (path / "state.json").is_file() else None


def read(path: Path, options: DataOptions) -> Dataset:
    """Read a folder written by ``save_to_disk``."""
    return _convert(_package(str(path)).load_from_disk(str(path)), path.name, str(find(path)), options)


def read_name(name: str, options: DataOptions) -> Dataset:
    """Read ``NAME`` or ``NAME:CONFIG`` from the hub, or a folder that ``load_dataset`` understands."""
    package = _package(f"hf:{name}")
    place, _, config = name.partition(":")
    try:
        loaded = package.load_dataset(place, config or None)
    except Exception as error:  # it raises whatever its network, script or builder raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"hf:{name} cannot be loaded ({reason}). Check the name and the network.") from None
    return _convert(loaded, place, f"hf:{name}", options)


def _package(source: str) -> ModuleType:
    """The package ``datasets``, which is not part of the core install."""
    try:
        return import_module("datasets")
    except ImportError:
        raise DataError(f"{source} needs the package datasets. Install it: pip install datasets.") from None


def _convert(loaded: Any, name: str, found: str, options: DataOptions) -> Dataset:  # noqa: ANN401
    import datasets

    splits = dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"train": loaded}
    by_part: dict[Part, tuple[str, Any]] = {}
    for split, data in splits.items():
        if part := part_of(split):
            by_part.setdefault(part, (split, data))
    if "train" not in by_part:
        raise DataError(f"{found} must have a split to train on, got {', '.join(splits)}.")
    features = by_part["train"][1].features
    image = next((key for key, kind in features.items() if isinstance(kind, datasets.Image)), None)
    if image is None:
        raise DataError(f"{found} must have a column of pictures, got {', '.join(features)}.")
    column = _label_column(features, image, options, found)
    named, many = _names(features[column])
    cells = {part: data[column] for part, (_, data) in by_part.items()}
    every = [cell for its in cells.values() for cell in its]
    if named is not None:
        lists = {part: [_numbers(cell) for cell in its] for part, its in cells.items()}
        labels = named
    else:
        mark = None if many else options.separator or guess_separator(every)
        texts = {part: [split_labels(cell, mark) for cell in its] for part, its in cells.items()}
        labels = label_order(word for its in texts.values() for words in its for word in words)
        place = {label: i for i, label in enumerate(labels)}
        lists = {part: [[place[word] for word in words] for words in its] for part, its in texts.items()}
    one = all(len(numbers) == 1 for its in lists.values() for numbers in its)
    single = one and not many and (named is not None or len(labels) > 2)
    task: Task = options.task or ("single-label" if single else "multi-label")
    if task == "single-label" and not one:
        raise DataError("data.task=single-label needs exactly one label a picture.")
    parts: dict[Part, ImageSet] = {}
    bare = 0
    for part, (split, data) in by_part.items():
        pictures = Column(data.select_columns([image]).cast_column(image, datasets.Image(decode=False)), image, split)
        whole = ImageSet(pictures, Targets.from_lists(lists[part], num_classes=len(labels)), labels, task)
        parts[part], without = labelled_only(whole, options)
        bare += without
    val, notes = choose_val(parts, options)
    what = f"{found}: pictures in {image!r}, labels in {column!r}"
    return Dataset(
        parts["train"],
        val,
        name,
        "Hugging Face",
        describe("Hugging Face dataset", parts["train"], val, what),
        notes + note_unlabelled(bare, options),
    )


def _label_column(features: Any, image: str, options: DataOptions, found: str) -> str:  # noqa: ANN401
    names = [name for name in features if name != image]
    if options.label_column is not None:
        if options.label_column not in names:
            raise DataError(
                f"data.options.label_column must be a column of {found}, got {options.label_column!r}. "
                f"It has {', '.join(names)}."
            )
        return options.label_column
    typed = [name for name in names if _names(features[name])[0] is not None]
    known = [word for word in ("fine_label", *MANY, *ONE) if word in names]
    for choice in ([name for name in known if name in typed], typed, known, names if len(names) == 1 else []):
        if choice:
            return choice[0]
    raise DataError(
        f"{found} needs a column of labels; it has {', '.join(names)}. Name it with data.options.label_column=NAME."
    )


def _names(feature: Any) -> tuple[tuple[str, ...] | None, bool]:  # noqa: ANN401
    """Names of a column's classes, where it keeps them, and whether it holds lists."""
    inner = getattr(feature, "feature", None)
    if inner is None and isinstance(feature, list):
        inner = feature[0]
    many = inner is not None
    names = getattr(inner if many else feature, "names", None)
    return (tuple(names) if names else None), many


def _numbers(cell: int | list[int] | None) -> list[int]:
    numbers = cell if isinstance(cell, list) else [] if cell is None else [cell]
    return [number for number in numbers if number >= 0]  # -1 says that there is none
