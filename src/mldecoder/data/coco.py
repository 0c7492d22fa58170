"""MS-COCO: ``annotations/instances_*.json`` and folders of pictures.

File names and keys: https://cocodataset.org/#format-data. The 80 category ids have gaps (1 to 90); labels are
ordered by id. Crowd annotations count, as in the official ML-Decoder code. Exports in the same format with
``train/_annotations.coco.json`` beside the pictures are read too.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

from mldecoder.data.dataset import Dataset, Files, ImageSet, Targets, describe
from mldecoder.data.layout import Part, choose_val, find_folder, labelled_only, note_unlabelled, part_of
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError

__all__ = ["find", "read"]

_NAME = re.compile(r"instances_([a-z]+?)[-_]?(\d{4})?\.json", re.IGNORECASE)


class _Source(NamedTuple):
    """One annotation file."""

    part: Part
    year: str  # empty where the name has none
    file: Path
    stem: str = ""  # what the folder of its pictures may be called, as train2014


def find(path: Path) -> str | None:
    """What marks the path as COCO, if anything does."""
    if path.is_file():
        return path.name if path.suffix == ".json" and _is_coco(path) else None
    files = _files(path)
    return ", ".join(sorted(str(source.file.relative_to(path)) for source in files)) if files else None


def read(path: Path, options: DataOptions) -> Dataset:
    """Read the training part and, where there is one, the validation part."""
    root = path.parent if path.is_file() else path
    if root.name == "annotations":
        root = root.parent
    files = _choose(path, _files(path), options) if path.is_dir() else [_Source("train", "", path, *_stem(path))]
    parts: dict[Part, ImageSet] = {}
    bare = 0
    loaded = {source.part: _load(source.file) for source in files}
    labels = _labels(loaded, path)
    for source in files:
        whole = _part(root, source, loaded[source.part], labels, options)
        parts[source.part], without = labelled_only(whole, options)
        bare += without
    val, notes = choose_val(parts, options)
    found = ", ".join(str(source.file.relative_to(root)) for source in files)
    return Dataset(
        parts["train"],
        val,
        root.name,
        "COCO",
        describe("COCO", parts["train"], val, found),
        notes + note_unlabelled(bare, options),
    )


def _is_coco(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4096)
    return head.lstrip().startswith(b"{") and any(
        key in head for key in (b'"images"', b'"categories"', b'"info"', b'"licenses"')
    )


def _files(root: Path) -> list[_Source]:
    """Annotation files of a folder."""
    found: list[_Source] = []
    for folder in (root / "annotations", root):
        for file in sorted(folder.glob("instances_*.json")):
            match = _NAME.fullmatch(file.name)
            if match and (part := part_of(match[1])):
                found.append(_Source(part, match[2] or "", file, *_stem(file)))
        if found:
            return found
    for folder in sorted(p for p in root.iterdir() if p.is_dir()) if root.is_dir() else []:
        file = folder / "_annotations.coco.json"
        if (part := part_of(folder.name)) and file.is_file():
            found.append(_Source(part, "", file))
    return found


def _stem(file: Path) -> list[str]:
    match = _NAME.fullmatch(file.name)
    return [f"{match[1]}{match[2] or ''}"] if match else []


def _choose(path: Path, files: list[_Source], options: DataOptions) -> list[_Source]:
    years = sorted({source.year for source in files if source.year})
    if options.year is not None:
        files = [source for source in files if source.year in {"", str(options.year)}]
    elif len(years) > 1:
        raise DataError(f"{path} holds COCO of {' and '.join(years)}. Choose one with data.options.year={years[-1]}.")
    if not any(source.part == "train" for source in files):
        raise DataError(f"{path} has no instances_train*.json. Give the file that you want to train on as the path.")
    return files


def _load(file: Path) -> dict[str, list[dict[str, object]]]:
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, OSError) as error:
        raise DataError(f"{file} must be a COCO file in JSON; it cannot be read ({error}).") from None
    for key in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise DataError(f"{file} must hold the lists images, annotations and categories; {key!r} is missing.")
    return content  # type: ignore[no-any-return]  # json


def _labels(loaded: dict[Part, dict[str, list[dict[str, object]]]], path: Path) -> dict[int, str]:
    """Category id to name, ordered by id; the parts must agree."""
    names: dict[int, str] = {}
    for part, content in loaded.items():
        for category in content["categories"]:
            number, name = int(str(category["id"])), str(category["name"])
            if names.setdefault(number, name) != name:
                raise DataError(
                    f"Category {number} of {path} must have one name; it is {names[number]!r} and, in {part}, {name!r}."
                )
    return dict(sorted(names.items()))


def _part(
    root: Path,
    source: _Source,
    content: dict[str, list[dict[str, object]]],
    labels: dict[int, str],
    options: DataOptions,
) -> ImageSet:
    place = {number: i for i, number in enumerate(labels)}
    row = {image["id"]: i for i, image in enumerate(content["images"])}
    positives: list[list[int]] = [[] for _ in row]
    for annotation in content["annotations"]:
        try:
            positives[row[annotation["image_id"]]].append(place[int(str(annotation["category_id"]))])
        except KeyError as error:
            raise DataError(
                f"Annotation {annotation.get('id')} of {source.file} speaks of an unknown picture or category {error}."
            ) from None
    names = [str(image["file_name"]) for image in content["images"]]
    part, stem = source.part, source.stem or source.part
    folders = [
        root / stem,
        root / "images" / stem,
        root / "images",
        root / part,
        root / "images" / part,
        root,
        source.file.parent,
    ]
    if options.images is not None:
        folders = [Path(options.images), Path(options.images) / stem]
    folder = find_folder(names, folders, what=source.file.name)
    if folder.is_relative_to(root) and folder != root:
        prefix = folder.relative_to(root).as_posix()
        folder, names = root, [f"{prefix}/{name}" for name in names]
    targets = Targets.from_lists(positives, num_classes=len(labels))
    return ImageSet(Files(folder, names), targets, _unique(tuple(labels.values())))


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """Number the labels that share a name."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(unique)
