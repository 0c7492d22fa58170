"""NUS-WIDE: 81 concepts judged by people, 1,000 tags given by users (925 of them are not among the 81).

Layout: the archives ``ImageList``, ``Groundtruth``, ``ConceptsList`` and ``NUS_WID_Tags`` of
https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html. The lists name pictures as
``actor\\0001_2124494179.jpg``; copies in the wild keep that name, or only the file name, or name files by the number
of the photo on Flickr (``2124494179.jpg``, ``98796_381708603_f86eb60ccf_m.jpg``). All are found.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mldecoder.data import table
from mldecoder.data.dataset import UNKNOWN, Dataset, Files, ImageSet, Targets, describe
from mldecoder.data.layout import find_folder, labelled_only, lines, note_unlabelled, walk
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError

__all__ = ["find", "flickr_id", "read"]

_PLACES = (
    "",
    "ImageList",
    "Imagelist",
    "Groundtruth/TrainTestLabels",
    "Groundtruth/AllLabels",
    "Groundtruth",
    "TrainTestLabels",
    "AllLabels",
    "NUS_WID_Tags",
    "ConceptsList",
    "Concepts",
)
_CSV = "nus_wid_data.csv"  # the list of ASL and ML-Decoder: filepath, label, split_name
_Matrix = NDArray[np.int8]


def find(path: Path) -> str | None:
    """What marks the path as NUS-WIDE, if anything does."""
    if path.name == _CSV or (path / _CSV).is_file():
        return _CSV
    file = _file(path, "TrainImagelist.txt")
    return str(file.relative_to(path)) if file else None


def read(path: Path, options: DataOptions) -> Dataset:
    """Read the training and the test part."""
    if find(path) == _CSV:
        return table.read(path if path.is_file() else path / _CSV, options, locate=_locate_csv)
    everything = lines(_need(path, "Imagelist.txt")) if _file(path, "Imagelist.txt") else []
    parts, notes, bare = [], [], 0
    for part in ("Train", "Test"):
        names = [name.replace("\\", "/") for name in lines(_need(path, f"{part}Imagelist.txt"))]
        labels, matrix, note = _targets(path, part, names, everything, options)
        whole, missing = _image_set(path, names, labels, matrix, options)
        one, without = labelled_only(whole, options)
        parts.append(one)
        bare += without
        notes += [note] if note and note not in notes else []
        if missing:
            notes.append(f"{missing:,} pictures of {part}Imagelist.txt are not on disk and left out.")
    train, val = parts
    return Dataset(
        train,
        val,
        path.name,
        "NUS-WIDE",
        describe("NUS-WIDE", train, val, f"{find(path)} and {options.nus_labels} labels"),
        (*notes, *note_unlabelled(bare, options)),
    )


def _file(root: Path, name: str) -> Path | None:
    return next((root / place / name for place in _PLACES if (root / place / name).is_file()), None)


def _need(root: Path, *names: str) -> Path:
    for name in names:
        if file := _file(root, name):
            return file
    raise DataError(f"NUS-WIDE in {root} needs {' or '.join(names)}, beside ImageList, Groundtruth and NUS_WID_Tags.")


def _targets(
    root: Path, part: str, names: Sequence[str], everything: list[str], options: DataOptions
) -> tuple[tuple[str, ...], _Matrix, str | None]:
    """Labels, their targets (n, k), and a note where users' tags stand in for people's judgement."""
    rows = None
    if everything:
        place = {name.replace("\\", "/"): i for i, name in enumerate(everything)}
        rows = [place.get(name, -1) for name in names]
    concepts = tuple(lines(_need(root, "Concepts81.txt", "TagList81.txt")))
    if options.nus_labels == "81":
        matrix, note = _concepts(root, part, concepts, len(names), rows)
        return concepts, matrix, note
    tags = lines(_need(root, "TagList1k.txt"))
    seen = [i for i, tag in enumerate(tags) if tag not in set(concepts)]
    others = _tags(root, f"{part}_Tags1k", len(names), len(tags), rows)[:, seen]
    labels = tuple(tags[i] for i in seen)
    if options.nus_labels == "925":
        return labels, others, None
    # Zero-shot: the 81 are not looked at in training, and judged in testing.
    if part == "Train":
        unseen, note = np.full((len(names), len(concepts)), UNKNOWN, dtype=np.int8), None
    else:
        unseen, note = _concepts(root, part, concepts, len(names), rows)
    return labels + concepts, np.concatenate([others, unseen], axis=1), note


def _concepts(
    root: Path, part: str, concepts: Sequence[str], n: int, rows: list[int] | None
) -> tuple[_Matrix, str | None]:
    if _file(root, f"Labels_{concepts[0]}_{part}.txt"):
        columns = [_digits(_need(root, f"Labels_{name}_{part}.txt"), n, 1) for name in concepts]
        return np.concatenate(columns, axis=1), None
    if rows is not None and _file(root, f"Labels_{concepts[0]}.txt"):
        columns = [_digits(_need(root, f"Labels_{name}.txt"), None, 1)[rows] for name in concepts]
        return np.concatenate(columns, axis=1), None
    note = "Groundtruth is not there: the 81 labels are the users' tags, not people's judgement."
    return _tags(root, f"{part}_Tags81", n, len(concepts), rows), note


def _tags(root: Path, stem: str, n: int, k: int, rows: list[int] | None) -> _Matrix:
    names = [f"{stem}{suffix}" for suffix in (".txt", ".dat")]
    if file := next((found for name in names if (found := _file(root, name))), None):
        return _digits(file, n, k)
    whole = _file(root, f"AllTags{stem.rpartition('Tags')[2]}.txt")
    if whole is None or rows is None:
        return _digits(_need(root, *names), n, k)
    return _digits(whole, None, k)[rows]


def _digits(file: Path, n: int | None, k: int) -> _Matrix:
    """A table of 0 and 1, whatever stands between: ``(n, k)``."""
    text = np.frombuffer(file.read_bytes(), dtype=np.uint8)
    digits = text[(text == ord("0")) | (text == ord("1"))] - ord("0")
    if len(digits) % k or (n is not None and len(digits) != n * k):
        raise DataError(f"{file} must hold {k} numbers 0 or 1 a picture for {n} pictures, got {len(digits)} numbers.")
    matrix: _Matrix = digits.reshape(-1, k).astype(np.int8)
    return matrix


def _image_set(
    root: Path, names: Sequence[str], labels: tuple[str, ...], matrix: _Matrix, options: DataOptions
) -> tuple[ImageSet, int]:
    files, kept = _resolve(root, names, options)
    matrix = matrix[kept]
    default = 0
    row, column = np.nonzero(matrix != default)
    targets = Targets.from_triplets(
        row, column, matrix[row, column], num_rows=len(kept), num_classes=len(labels), default=default
    )
    return ImageSet(files, targets, labels), len(names) - len(kept)


def _resolve(root: Path, names: Sequence[str], options: DataOptions) -> tuple[Files, NDArray[np.int64]]:
    """Picture files under whichever naming the copy uses, and which of the names were found."""
    base = Path(options.images) if options.images else root
    folders = [base / name for name in ("Flickr", "flickr", "images", "image", "Images", "")]
    for style in (list(names), [name.rsplit("/", 1)[-1] for name in names]):
        try:
            folder = find_folder(style, folders, what="NUS-WIDE")
        except DataError:
            continue
        return Files(folder, style), np.arange(len(names))
    known = {flickr_id(name): name for name in walk(base)}
    found = [known.get(flickr_id(name)) for name in names]
    kept = [i for i, name in enumerate(found) if name is not None]
    if not kept:
        find_folder(names, folders, what="NUS-WIDE")  # says where was looked
    return Files(base, [str(found[i]) for i in kept]), np.array(kept, dtype=np.int64)


def _locate_csv(file: Path, names: Sequence[str], options: DataOptions) -> Files:
    try:
        return table.locate_files(file, names, options)
    except DataError:
        files, kept = _resolve(file.parent, [name.replace("\\", "/") for name in names], options)
        if len(kept) < len(names):
            absent = names[int(np.setdiff1d(np.arange(len(names)), kept)[0])]
            raise DataError(
                f"{len(names) - len(kept):,} pictures of {file.name} are not on disk, such as {absent!r}. "
                "Remove their rows, or say where they are with data.options.images=FOLDER."
            ) from None
        return files


def flickr_id(name: str) -> str:
    """The photo's number on Flickr, from any of the namings.

    Example:
        >>> flickr_id("actor/0001_2124494179.jpg"), flickr_id("98796_381708603_f86eb60ccf_m.jpg")
        ('2124494179', '381708603')
    """
    words = Path(name).stem.split("_")
    return words[-3] if len(words) >= 3 and len(words[-1]) == 1 else words[-1]
