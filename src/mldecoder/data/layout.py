"""Finding things in a dataset's folder: the pictures, the part a name speaks of, lines of text."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from mldecoder.data.dataset import ImageSet
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError

__all__ = ["EXTENSIONS", "choose_val", "find_folder", "has_pictures", "labelled_only", "lines", "part_of", "walk"]

Part = Literal["train", "val", "test"]

EXTENSIONS = frozenset(
    [
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".png",
        ".webp",
        ".gif",
        ".bmp",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        ".pbm",
        ".jp2",
        ".avif",
        ".ico",
    ]
)
"""File names that end so are taken for pictures; what is really inside is seen when they are decoded."""

_WORDS: dict[str, Part] = {
    **dict.fromkeys(("train", "trainval", "training", "trn", "learn"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval", "held-out", "heldout"), "val"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}
_SAMPLE = 64


def part_of(word: str) -> Part | None:
    """The part that a word such as "trainval" or "Validation" names."""
    return _WORDS.get(word.strip().lower())


def choose_val(parts: dict[Part, ImageSet], options: DataOptions) -> tuple[ImageSet | None, tuple[str, ...]]:
    """The part to validate on, and a note when another one is left out."""
    if options.val_part is not None and options.val_part not in parts:
        known = ", ".join(parts)
        raise DataError(f"data.options.val_part must name a part of the data ({known}), got {options.val_part!r}.")
    name = options.val_part or ("val" if "val" in parts else "test")
    other = "test" if name == "val" else "val"
    notes: tuple[str, ...] = ()
    if name in parts and other in parts:
        size = f"{len(parts[other]):,} pictures"
        notes = (f"The {other} part ({size}) is left out; data.options.val_part={other} validates on it.",)
    return parts.get(name), notes


def labelled_only(part: ImageSet, options: DataOptions) -> tuple[ImageSet, int]:
    """Drop pictures without a label if asked to; also how many pictures had none."""
    counts = part.targets.positives_per_image()
    bare = int((counts == 0).sum())
    if options.drop_unlabelled and bare:
        part = part.select(np.flatnonzero(counts))
    return part, bare


def note_unlabelled(bare: int, options: DataOptions) -> tuple[str, ...]:
    """A line about pictures without labels, if there are any."""
    if not bare:
        return ()
    done = "dropped" if options.drop_unlabelled else "kept as negatives; data.options.drop_unlabelled=true drops them"
    return (f"{bare:,} pictures have no label ({done}).",)


def find_folder(names: Sequence[str], folders: Iterable[Path], *, what: str) -> Path:
    """The folder below which most of a sample of the names exist.

    Raises:
        DataError: when none of them exists anywhere; it says where was looked.
    """
    tried = list(dict.fromkeys(folders))
    chosen = np.unique(np.linspace(0, max(len(names) - 1, 0), min(len(names), _SAMPLE)).astype(int))
    sample = [names[int(i)] for i in chosen]
    hits = [sum((folder / name).is_file() for name in sample) for folder in tried]
    if not sample:
        return tried[0]
    best = int(np.argmax(hits))
    if not hits[best]:
        looked = ", ".join(str(folder) for folder in tried)
        raise DataError(
            f"No picture of {what} was found, such as {sample[0]!r}; looked in {looked}. "
            "Say where they are with data.options.images=FOLDER."
        )
    return tried[best]


def walk(folder: Path) -> list[str]:
    """Paths of all picture files below a folder, sorted."""
    return sorted(_pictures(folder))


def has_pictures(folder: Path) -> bool:
    """Whether any picture file lies below a folder; stops at the first."""
    return any(True for _ in _pictures(folder))


def _pictures(folder: Path) -> Iterator[str]:
    for base, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        inside = PurePosixPath(Path(base).relative_to(folder).as_posix())
        for name in files:
            if Path(name).suffix.lower() in EXTENSIONS and not name.startswith("."):
                yield str(inside / name)


def lines(path: Path) -> list[str]:
    """The lines of a text file, without blank ones and the spaces around them."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    return [line.strip() for line in text.splitlines() if line.strip()]
