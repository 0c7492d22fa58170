"""From a path to a dataset: find out the format, read it, say what was found."""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from mldecoder.data import (
    cars,
    cifar,
    coco,
    folders,
    hugging_face,
    indexed_shards,
    nus_wide,
    open_images,
    scenes_store,
    shards,
    table,
    voc,
)
from mldecoder.data.dataset import Dataset
from mldecoder.data.options import DataOptions
from mldecoder.data.remote import is_url
from mldecoder.data.split import split_off
from mldecoder.errors import ConfigError, DataError, did_you_mean

__all__ = ["FORMATS", "DataOptions", "open_dataset", "split_off"]


class _Format(NamedTuple):
    """How a format is recognised and read, and what it looks like."""

    find: Callable[[Path], str | None]
    read: Callable[[Path, DataOptions], Dataset]
    looks: str


FORMATS: dict[str, _Format] = {
    "hf": _Format(hugging_face.find, hugging_face.read, "dataset_dict.json (save_to_disk)"),
    "coco": _Format(coco.find, coco.read, "annotations/instances_*.json"),
    "voc": _Format(voc.find, voc.read, "VOC*/Annotations and ImageSets/Main"),
    "nus-wide": _Format(nus_wide.find, nus_wide.read, "ImageList/TrainImagelist.txt"),
    "open-images": _Format(open_images.find, open_images.read, "*train-annotations-human-imagelabels.csv"),
    "cifar": _Format(cifar.find, cifar.read, "cifar-100-binary/train.bin"),
    "stanford-cars": _Format(cars.find, cars.read, "devkit/cars_train_annos.mat"),
    "shards": _Format(shards.find, shards.read, "*.tar"),
    "table": _Format(table.find, table.read, "one .csv, .tsv, .jsonl or .parquet"),
    "folders": _Format(folders.find, folders.read, "class folders of pictures, or train/ and val/ with them"),
}
"""Formats in the order in which they are tried: what is most particular comes first."""


def open_dataset(
    path: str | Path,
    *,
    format: str | None = None,
    options: Mapping[str, object] | DataOptions | None = None,
) -> Dataset:
    """Open a dataset of any known format.

    Args:
        path: A folder, a file, shards such as ``train-{000000..000012}.tar``, ``hf:NAME``, ``scenes``,
            or the address of packed shards such as ``s3://bucket/shards``.
        format: One of ``FORMATS``; None finds out.
        options: What ``DataOptions`` knows.

    Example:
        >>> open_dataset("scenes", options={"count": 10}).description
        'scenes, 10 + 2 pictures, 36 labels, multi-label, found the embedded set of drawn pictures'
    """
    chosen = DataOptions.of(options)
    if str(path) == "scenes" and format in (None, "scenes"):
        return scenes_store.read(chosen)
    if str(path).startswith("hf:"):
        return hugging_face.read_name(str(path).removeprefix("hf:"), chosen)
    if is_url(path) and not str(path).startswith("file://"):
        if format not in (None, "shards"):
            raise ConfigError(f"At an address only packed shards are read, not {format}. Pack them: mldecoder shard.")
        return indexed_shards.read_url(str(path), chosen)
    if format is not None and format not in FORMATS:
        hint = did_you_mean(format, FORMATS, f"Known: {', '.join(FORMATS)}.")
        raise ConfigError(f"Unknown data format {format!r}. {hint}")
    place = Path(str(path).removeprefix("file://")).expanduser()
    if not place.exists() and not shards.find(place):
        raise DataError(_absent(place))
    if chosen.images is not None and not any(Path(base, chosen.images).is_dir() for base in ("", place, place.parent)):
        raise DataError(f"data.options.images must be a folder, got {chosen.images!r}.")
    for name in [format] if format is not None else FORMATS:
        found = FORMATS[name].find(place)
        if found is not None:
            return FORMATS[name].read(place, chosen)
        if format is not None:
            raise DataError(f"{place} is not of the format {name}: {FORMATS[name].looks} was not found.")
    looked = "; ".join(f"{name}: {its.looks}" for name, its in FORMATS.items())
    raise DataError(f"{place} holds no dataset of a known format. Looked for {looked}.")


def _absent(place: Path) -> str:
    near: list[str] = []
    if place.parent.is_dir():
        near = difflib.get_close_matches(place.name, [p.name for p in place.parent.iterdir()], n=1)
    hint = f"Did you mean {place.parent / near[0]}?" if near else "'scenes' is the embedded dataset."
    return f"{place} does not exist. {hint}"
