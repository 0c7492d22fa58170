"""Anything picture-like becomes a named source; a source becomes the tensor that the model takes.

Shapes: n pictures, c channels, h and w height and width.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mldecoder.data.decode import decode
from mldecoder.data.layout import EXTENSIONS
from mldecoder.errors import DataError, InputError
from mldecoder.predict.member import Member

__all__ = ["Picture", "PictureOrMany", "Source", "named_files", "sources", "walk"]

Picture = str | os.PathLike[str] | bytes | bytearray | memoryview | Image.Image | NDArray[np.generic] | Tensor
PictureOrMany = Picture | Iterable[Picture]

_CHUNK = 10_000  # names of a folder that are sorted together: memory stays small in a folder of any size


@dataclass(frozen=True)
class Source:
    """A picture that was not read yet; where a folder could not be listed, the error stands in its place."""

    name: str
    content: Path | bytes | Image.Image | Member | DataError

    def read(self) -> Image.Image:
        """The upright RGB picture.

        Raises:
            DataError: with the reason, when there is no whole picture.
        """
        if isinstance(self.content, DataError):
            raise self.content
        return decode(self.content.read() if isinstance(self.content, Member) else self.content)


def sources(images: PictureOrMany) -> Iterator[Source]:
    """The pictures in what a caller gave: paths, folders, bytes, PIL pictures, arrays, tensors, or many of them.

    Arrays are ``(h, w)`` or ``(h, w, c)``, tensors ``(c, h, w)``, either uint8 or between 0 and 1; one more
    dimension in front makes them many pictures.
    """
    given = [cast("Picture", images)] if isinstance(images, _ONE) else images
    if not isinstance(given, Iterable):
        raise InputError(f"A picture must be a path, bytes, a PIL picture, an array or a tensor, got {_kind(images)}.")
    number = 0
    for one in given:
        for source in _sources_of(one, number):
            yield source
            number += 1


def named_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Source]:
    """The picture files in files and folder trees, each file once however often it is named.

    A file that is named by itself is taken whatever its ending.
    """
    given = [Path(path) for path in paths]
    alone = {os.path.abspath(path) for path in given if not path.is_dir()}  # noqa: PTH100  (resolve follows links)
    seen: set[tuple[int, int]] = set()  # folders, so that a link to one above does not go round for ever
    said: set[str] = set()
    for path in given:
        if path.is_dir():
            yield from walk(path, seen, alone)
        elif (place := os.path.abspath(path)) not in said:  # noqa: PTH100
            said.add(place)
            yield Source(str(path), path)


def walk(folder: Path, seen: set[tuple[int, int]] | None = None, skip: Iterable[str] = ()) -> Iterator[Source]:
    """Picture files below a folder; of its memory use only the number of folders matters.

    Links are followed, each folder is visited once, hidden names are left out. Files come sorted within a folder
    (in very large ones within each ten thousand), then its folders.

    Args:
        folder: Where to begin.
        seen: Folders visited already, by device and number; grows.
        skip: Absolute paths of files to leave out.
    """
    seen = set() if seen is None else seen
    left_out = skip if isinstance(skip, set) else set(skip)
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            status = here.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            inside: list[Path] = []
            for name in _file_names(here, inside):
                path = here / name
                if not left_out or os.path.abspath(path) not in left_out:  # noqa: PTH100
                    yield Source(str(path), path)
        except OSError as error:
            yield Source(str(here), DataError(f"the folder cannot be read ({error.strerror})"))
            continue
        waiting.extend(sorted(inside, reverse=True))


def _file_names(folder: Path, inside: list[Path]) -> Iterator[str]:
    """Names of the picture files of one folder; its folders are added to ``inside``."""
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "__MACOSX")):
                continue
            if entry.is_dir():
                inside.append(folder / entry.name)
            elif Path(entry.name).suffix.lower() in EXTENSIONS:
                names.append(entry.name)
            if len(names) >= _CHUNK:
                yield from sorted(names)
                names.clear()
    yield from sorted(names)


_ONE = (str, os.PathLike, bytes, bytearray, memoryview, Image.Image, np.ndarray, Tensor)


def _sources_of(one: object, number: int) -> Iterator[Source]:
    if isinstance(one, str | os.PathLike):
        text = str(os.fspath(one))
        if text.startswith(("http://", "https://")):
            raise InputError(f"Pictures are read from this machine, got the address {text}. Download it first.")
        path = Path(text)
        if path.is_dir():
            yield from walk(path)
        else:
            yield Source(text, path)
    elif isinstance(one, bytes | bytearray | memoryview):
        yield Source(f"picture {number}", bytes(one))
    elif isinstance(one, Image.Image):
        yield Source(f"picture {number}", one)
    elif isinstance(one, np.ndarray | Tensor):
        for i, picture in enumerate(_from_numbers(one)):
            yield Source(f"picture {number + i}", picture)
    else:
        raise InputError(f"A picture must be a path, bytes, a PIL picture, an array or a tensor, got {_kind(one)}.")


def _from_numbers(values: "NDArray[np.generic] | Tensor") -> Iterator[Image.Image]:
    if isinstance(values, Tensor):
        if values.ndim not in (3, 4):
            raise InputError(
                f"A tensor must be one picture (c, h, w) or several (n, c, h, w), got {tuple(values.shape)}."
            )
        array = values.detach().cpu().float().numpy() if values.is_floating_point() else values.cpu().numpy()
        array = np.moveaxis(array, -3, -1)
    else:
        if values.ndim not in (2, 3, 4):
            raise InputError(f"An array must be (h, w), (h, w, c) or (n, h, w, c), got {values.shape}.")
        array = values if values.ndim > 2 else values[..., None]
    if array.shape[-1] not in (1, 3, 4) or 0 in array.shape:
        order = "(c, h, w)" if isinstance(values, Tensor) else "(h, w, c)"
        raise InputError(f"A picture must be {order} with 1, 3 or 4 channels, got {tuple(values.shape)}.")
    for picture in array if array.ndim == 4 else array[None]:
        eight = _eight_bits(picture)
        yield Image.fromarray(eight[..., 0] if eight.shape[-1] == 1 else eight)


def _eight_bits(picture: NDArray[np.generic]) -> NDArray[np.uint8]:
    if picture.dtype == np.uint8:
        return np.ascontiguousarray(picture, dtype=np.uint8)
    if not np.issubdtype(picture.dtype, np.floating):
        raise InputError(f"Pixels must be uint8, or floats between 0 and 1, got {picture.dtype}.")
    low, high = float(picture.min()), float(picture.max())
    if not (low >= 0 and high <= 1):
        raise InputError(
            f"Pixels that are floats must lie between 0 and 1, got {low:.3g} to {high:.3g}. "
            f"Give pictures before any preprocessing, or call the model itself on preprocessed ones."
        )
    return np.rint(picture.astype(np.float64) * 255).astype(np.uint8)


def _kind(value: object) -> str:
    return type(value).__name__
