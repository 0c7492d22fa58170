"""CIFAR-100 and CIFAR-10, binary version; the pickled version with a reader that runs no code.

Formats: https://www.cs.toronto.edu/~kriz/cifar.html. A record of CIFAR-100 is a byte of coarse label, one of fine
label and 3 x 32 x 32 bytes of pixels; of CIFAR-10 one byte of label and the pixels.
"""

import pickle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mldecoder.data.dataset import Arrays, Dataset, ImageSet, Targets, describe
from mldecoder.data.layout import lines
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError

__all__ = ["find", "read"]

_PIXELS = 3 * 32 * 32
_NUMPY = {"_reconstruct", "_frombuffer", "ndarray", "dtype"}


def find(path: Path) -> str | None:
    """What marks the path as CIFAR, if anything does."""
    kind = _kind(path)
    return f"{kind[1].name}/ ({kind[0]})" if kind else None


def read(path: Path, options: DataOptions) -> Dataset:
    """Read training and test pictures into memory (180 MB)."""
    kind = _kind(path)
    if kind is None:
        raise DataError(f"{path} holds no CIFAR files.")
    name, folder = kind
    notes: tuple[str, ...] = ()
    if name == "CIFAR-100 binary":
        labels = tuple(lines(folder / "fine_label_names.txt"))
        train, test = _binary([folder / "train.bin"], 2), _binary([folder / "test.bin"], 2)
    elif name == "CIFAR-10 binary":
        labels = tuple(lines(folder / "batches.meta.txt"))
        batches = sorted(folder.glob("data_batch_*.bin"))
        train, test = _binary(batches, 1), _binary([folder / "test_batch.bin"], 1)
    else:
        notes = ("Pickled files were read without running any code in them.",)
        labels = tuple(str(label) for label in _unpickle(folder / "meta")["fine_label_names"])
        train, test = _pickled(folder / "train"), _pickled(folder / "test")
    sets = []
    for part, (images, classes) in (("train", train), ("test", test)):
        targets = Targets.from_classes(classes, num_classes=len(labels))
        sets.append(ImageSet(Arrays(images, prefix=f"{part}/"), targets, labels, options.task or "single-label"))
    return Dataset(sets[0], sets[1], path.name, name, describe(name, sets[0], sets[1], f"{folder.name}/"), notes)


def _kind(path: Path) -> tuple[str, Path] | None:
    for folder in (path, path / "cifar-100-binary", path / "cifar-10-batches-bin", path / "cifar-100-python"):
        if (folder / "fine_label_names.txt").is_file() and (folder / "train.bin").is_file():
            return "CIFAR-100 binary", folder
        if (folder / "batches.meta.txt").is_file() and (folder / "test_batch.bin").is_file():
            return "CIFAR-10 binary", folder
        if all((folder / name).is_file() for name in ("meta", "train", "test")):
            return "CIFAR-100 pickled", folder
    return None


def _binary(files: list[Path], head: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    parts = []
    for file in files:
        data = np.fromfile(file, dtype=np.uint8) if file.is_file() else np.empty(0, np.uint8)
        if not len(data) or len(data) % (head + _PIXELS):
            raise DataError(
                f"{file} must hold records of {head + _PIXELS} bytes, got {len(data):,} bytes. Download it again."
            )
        parts.append(data.reshape(-1, head + _PIXELS))
    records = np.concatenate(parts)
    return _images(records[:, head:]), records[:, head - 1].astype(np.int64)


def _images(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


class _OnlyArrays(pickle.Unpickler):
    """Rebuilds numpy arrays and plain values, and refuses everything else, as a pickle may run any code."""

    def find_class(self, module: str, name: str) -> object:
        if module.split(".", maxsplit=1)[0] == "numpy" and name in _NUMPY:
            # the modules of numpy 1 have moved; both spellings are in files
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise DataError(f"A CIFAR file must hold arrays only, but it asks for {module}.{name}. Do not trust it.")


def _unpickle(file: Path) -> dict[str, list[object]]:
    try:
        with file.open("rb") as handle:
            content = _OnlyArrays(handle, encoding="latin1").load()
    except (OSError, pickle.UnpicklingError, EOFError, ValueError, IndexError, AttributeError, TypeError) as error:
        raise DataError(f"{file} must be a CIFAR file; it cannot be read ({error}). Download it again.") from None
    if not isinstance(content, dict):
        raise DataError(f"{file} must hold a table of CIFAR, got {type(content).__name__}.")
    return content


def _pickled(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = _unpickle(file)
    pixels = np.asarray(content.get("data"), dtype=np.uint8)
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise DataError(f"{file} must hold pixels (n, {_PIXELS}), got {pixels.shape}.")
    return _images(pixels), np.asarray(content["fine_labels"], dtype=np.int64)
