"""Open Images V4 to V7: image-level labels verified by people, and more given by machines.

Files and headers: https://storage.googleapis.com/openimages/web/download_v7.html. A label that people confirmed
(Confidence 1) is positive, one that they denied (0) is negative, and all others are unknown.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mldecoder.data.dataset import UNKNOWN, Dataset, Files, ImageSet, Targets, describe
from mldecoder.data.layout import Part, choose_val, lines
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError

__all__ = ["find", "read"]

_NAMES: dict[Part, str] = {"train": "train", "val": "validation", "test": "test"}
_PLACES = ("", "annotations", "labels", "csv", "metadata", "csv_folder")


def find(path: Path) -> str | None:
    """What marks the path as Open Images, if anything does."""
    files = [file for part in _NAMES if (file := _labels_file(path, part, "human"))]
    return ", ".join(str(file.relative_to(path)) for file in files) or None


def read(path: Path, options: DataOptions) -> Dataset:
    """Read the training part, and the validation or test part where they are there."""
    ids, names, notes = _classes(path)
    parts: dict[Part, ImageSet] = {}
    for part in _NAMES:
        if (file := _labels_file(path, part, "human")) is None:
            continue
        table = _read_labels(file)
        if options.machine_labels:
            machine = _labels_file(path, part, "machine")
            if machine is None and part == "train":
                raise DataError("data.options.machine_labels needs train-annotations-machine-imagelabels.csv.")
            table = _with_machine(table, _read_labels(machine), options.machine_threshold) if machine else table
        folder, present = _folder(path, part, options)
        parts[part], missing = _part(folder, present, table, ids, names)
        if missing:
            notes += (f"{missing:,} pictures of {file.name} are not on disk and left out.",)
    if "train" not in parts:
        raise DataError(f"{path} has no train-annotations-human-imagelabels.csv to train on.")
    val, more = choose_val(parts, options)
    return Dataset(
        parts["train"],
        val,
        path.name,
        "Open Images",
        describe("Open Images", parts["train"], val, str(find(path))),
        notes + more,
    )


def _file(root: Path, *names: str) -> Path | None:
    return next((f for place in _PLACES for name in names if (f := root / place / name).is_file()), None)


def _labels_file(root: Path, part: Part, source: str) -> Path | None:
    stem = f"{_NAMES[part]}-annotations-{source}-imagelabels"
    return _file(root, f"oidv7-{stem}.csv", f"oidv6-{stem}.csv", f"{stem}.csv", f"{stem}-boxable.csv")


def _classes(root: Path) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """Identifiers and names of the labels; only the trainable ones where their list is there."""
    stems = ("class-descriptions", "class-descriptions-boxable")
    file = _file(root, *(f"{v}{stem}.csv" for stem in stems for v in ("oidv7-", "oidv6-", "")))
    if file is None:
        raise DataError(f"Open Images in {root} needs oidv6-class-descriptions.csv or class-descriptions.csv.")
    pairs = [line.split(",", 1) for line in lines(file)]
    known = {pair[0]: pair[1].strip().strip('"') for pair in pairs if pair[0].startswith("/")}  # /m/... or /g/...
    notes: tuple[str, ...] = ()
    trainable = _file(root, "oidv7-classes-trainable.txt", "oidv6-classes-trainable.txt", "classes-trainable.txt")
    ids = list(known)
    if trainable is not None:
        chosen = lines(trainable)
        notes = (f"{len(chosen):,} of {len(known):,} labels are kept: those of {trainable.name}.",)
        ids = chosen
    names = [known.get(name, name) for name in ids]
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    return ids, tuple(f"{n} ({i})" if n in twice else n for i, n in zip(ids, names, strict=True)), notes


def _read_labels(file: Path) -> Any:  # noqa: ANN401 - a pyarrow table, which has no types
    import pyarrow as pa
    from pyarrow import csv

    wanted = {
        "ImageID": pa.dictionary(pa.int32(), pa.string()),
        "LabelName": pa.dictionary(pa.int32(), pa.string()),
        "Confidence": pa.float32(),
    }
    try:
        options = csv.ConvertOptions(column_types=wanted, include_columns=list(wanted))
        return csv.read_csv(file, convert_options=options).unify_dictionaries()
    except (pa.ArrowInvalid, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file} must have the columns ImageID, LabelName and Confidence ({reason}).") from None


def _with_machine(people: Any, machine: Any, threshold: float) -> Any:  # noqa: ANN401
    """Add what machines are sure enough of, where no person said anything."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sure = machine.filter(pc.greater_equal(machine["Confidence"], threshold))
    plain = {name: pa.string() for name in ("ImageID", "LabelName")}
    schema = pa.schema([*plain.items(), ("Confidence", pa.float32())])
    sure, said = sure.cast(schema), people.cast(schema)
    new = sure.join(said.select(["ImageID", "LabelName"]), ["ImageID", "LabelName"], join_type="left anti")
    new = new.select(schema.names).set_column(2, "Confidence", pa.array(np.ones(len(new), np.float32)))
    both = pa.concat_tables([said, new.cast(schema)])
    for i, name in enumerate(plain):
        both = both.set_column(i, name, both[name].dictionary_encode())
    return both.unify_dictionaries()


def _part(
    folder: Path,
    present: set[str],
    table: Any,  # noqa: ANN401
    ids: list[str],
    names: tuple[str, ...],
) -> tuple[ImageSet, int]:
    pictures, row = _codes(table["ImageID"])
    labels, label = _codes(table["LabelName"])
    place = {name: i for i, name in enumerate(ids)}
    column = np.array([place.get(name, -1) for name in labels] or [-1])[label]
    confidence = table["Confidence"].to_numpy()
    value = np.where(confidence >= 1, 1, np.where(confidence <= 0, 0, UNKNOWN))
    kept = column >= 0
    there = np.array([f"{name}.jpg" in present for name in pictures], dtype=bool)
    if len(pictures) and not there.any():
        raise DataError(
            f"No picture of Open Images, such as {pictures[0]}.jpg, was found in {folder}. "
            "Say where they are with data.options.images=FOLDER."
        )
    new = np.cumsum(there) - 1
    kept &= there[row]
    targets = Targets.from_triplets(
        new[row[kept]],
        column[kept],
        value[kept],
        num_rows=int(there.sum()),
        num_classes=len(ids),
        default=UNKNOWN,
    )
    files = Files(folder, (f"{pictures[i]}.jpg" for i in np.flatnonzero(there)))
    return ImageSet(files, targets, names), int((~there).sum())


def _codes(column: Any) -> tuple[list[str], NDArray[np.int64]]:  # noqa: ANN401
    """Different values of a column in order of appearance, and which of them stands in each row."""
    encoded = column.combine_chunks()
    encoded = encoded.chunk(0) if hasattr(encoded, "num_chunks") else encoded
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def _folder(root: Path, part: Part, options: DataOptions) -> tuple[Path, set[str]]:
    base = Path(options.images) if options.images else root
    name = _NAMES[part]
    tried = [base / name, base / "images" / name, base / name / "data", base / "data" / name, base / "images", base]
    folder = next((f for f in tried if f.is_dir() and _has_pictures(f)), tried[0])
    if not folder.is_dir():
        return folder, set()
    with os.scandir(folder) as entries:
        return folder, {entry.name for entry in entries}


def _has_pictures(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(entry.name.endswith(".jpg") for entry in entries)
