"""The whole of ``scenes``, drawn once and kept in the user's cache folder."""

import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mldecoder.cache import cache_folder
from mldecoder.data import scenes
from mldecoder.data.dataset import Dataset, ImageSet, describe
from mldecoder.data.options import DataOptions
from mldecoder.data.pictures import Arrays
from mldecoder.data.targets import Targets

__all__ = ["read"]

_VERSION = 1  # goes up when the pictures change
_SMALL = 600  # so few pictures are drawn faster than a cache is worth


def read(options: DataOptions) -> Dataset:
    """The embedded dataset, whole or its first ``options.count`` training pictures."""
    count = min(options.count or scenes.SIZES["train"], scenes.SIZES["train"])
    val_count = max(1, min(count // 5, scenes.SIZES["val"]))
    train, val = _image_set("train", count), _image_set("val", val_count)
    return Dataset(train, val, "scenes", "scenes", describe("scenes", train, val, "the embedded set of drawn pictures"))


def _image_set(split: scenes.Split, count: int) -> ImageSet:
    images, targets = _drawn(split, count) if count <= _SMALL else _cached(split)
    return ImageSet(
        Arrays(images, prefix=f"scenes/{split}/"),
        Targets.from_lists([np.flatnonzero(row).astype(np.int64) for row in targets], num_classes=len(scenes.LABELS)),
        scenes.LABELS,
    ).select(np.arange(count))


def _drawn(split: scenes.Split, count: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    images = np.empty((count, scenes.SIDE, scenes.SIDE, 3), dtype=np.uint8)
    targets = np.zeros((count, len(scenes.LABELS)), dtype=bool)
    place = {label: i for i, label in enumerate(scenes.LABELS)}
    for i in range(count):
        images[i], labels = scenes.draw(i, split)
        targets[i, [place[label] for label in labels]] = True
    return images, targets


def _cached(split: scenes.Split) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The whole split from the cache; drawn, and kept where the folder can be written."""
    folder = cache_folder()
    stem = f"scenes-v{_VERSION}-{split}"
    paths = folder / f"{stem}-images.npy", folder / f"{stem}-targets.npy"
    try:
        images, targets = np.load(paths[0], mmap_mode="r"), np.load(paths[1])
        if _intact(images, targets, split):
            return images, targets
    except (OSError, ValueError, EOFError):
        pass  # not there, or cut off: draw again
    images, targets = _drawn(split, scenes.SIZES[split])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _save(paths[0], images)
        _save(paths[1], targets)
        return np.load(paths[0], mmap_mode="r"), targets
    except OSError:
        return images, targets  # a read-only home is no reason to stop


def _intact(images: NDArray[np.uint8], targets: NDArray[np.bool_], split: scenes.Split) -> bool:
    size = scenes.SIZES[split]
    if images.shape != (size, scenes.SIDE, scenes.SIDE, 3) or targets.shape != (size, len(scenes.LABELS)):
        return False
    return all(np.array_equal(images[i], scenes.draw(i, split)[0]) for i in (0, size // 2, size - 1))


def _save(path: Path, array: NDArray[np.generic]) -> None:
    """Write beside, then rename: another process sees the whole file or none."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, array)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
