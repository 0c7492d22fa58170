"""What is to be packed: all parts of a dataset by name, and whether a folder holds that very packing."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from mldecoder.data.dataset import Dataset, ImageSet
from mldecoder.data.detect import open_dataset
from mldecoder.data.layout import Part
from mldecoder.data.options import DataOptions
from mldecoder.data.shard_index import FILE, read_header
from mldecoder.errors import ConfigError, DataError

__all__ = ["RECORDS", "claim", "finished", "open_parts", "plan_of", "write_text"]

RECORDS = ".packing"
"""Folder beside the shards in which a packing keeps what it needs to go on."""
_PLAN = "plan.json"


def open_parts(data: str | Path, format: str | None, options: DataOptions) -> tuple[Dataset, dict[Part, ImageSet]]:
    """The dataset and all of its parts by name; a reader shows one held-out part at a time."""
    dataset = open_dataset(data, format=format, options=options)
    parts: dict[Part, ImageSet] = {"train": dataset.train}
    if dataset.val is None:
        return dataset, parts
    if options.val_part is not None:
        return dataset, parts | {options.val_part: dataset.val}
    held_out: tuple[Literal["val"], Literal["test"]] = ("val", "test")
    for part in held_out:
        try:
            found = open_dataset(data, format=format, options=replace(options, val_part=part)).val
        except DataError:  # there is no such part
            continue
        if found is not None and not any(_same(found, other) for other in parts.values()):
            parts[part] = found  # a reader that knows one held-out part gives it under either name
    return dataset, parts


def _same(one: ImageSet, other: ImageSet) -> bool:
    last = len(one) - 1
    ends = {0, last} if last >= 0 else set()
    return len(one) == len(other) and all(one.pictures.name(i) == other.pictures.name(i) for i in ends)


def plan_of(dataset: Dataset, parts: Mapping[Part, ImageSet], settings: Mapping[str, object]) -> str:
    """A digest of all that decides what the shards hold, as far as it can be seen without reading pictures."""
    digest = hashlib.sha256(json.dumps([dict(settings), dataset.task, list(dataset.labels)]).encode())
    for part, image_set in parts.items():
        digest.update(f"\n{part} {len(image_set)} {image_set.targets.default}\n".encode())
        for array in (image_set.targets.indptr, image_set.targets.columns, image_set.targets.values):
            digest.update(np.ascontiguousarray(array).tobytes())
        for i in range(len(image_set)):
            digest.update(f"{image_set.pictures.name(i)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def claim(folder: Path, plan: str) -> None:
    """Mark the folder as this packing's own; refuse one that holds other shards."""
    path = folder / RECORDS / _PLAN
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8"))["plan"] != plan:
            raise ConfigError(
                f"{folder} holds a packing of other data, or with other settings, that was not finished. Delete it, "
                f"or name another folder."
            )
        return
    if any(folder.glob("*.tar")):
        shutil.rmtree(folder / RECORDS)
        raise ConfigError(f"{folder} holds shards already. Name another folder.")
    write_text(path, json.dumps({"plan": plan}))


def finished(folder: Path, plan: str) -> bool:
    """Whether the folder holds this very packing, whole."""
    if not (folder / FILE).is_file():
        return False
    header = read_header(folder / FILE)
    if header.plan != plan:
        raise ConfigError(
            f"{folder} holds shards of other data, or with other settings. Delete it, or name another folder."
        )
    shutil.rmtree(folder / RECORDS, ignore_errors=True)
    return True


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is complete or not there."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
