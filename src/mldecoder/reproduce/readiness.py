"""Whether a folder holds the data that a table was made on, without training: counts beside those that are stated."""

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from mldecoder.data.dataset import Dataset, Files, ImageSet
from mldecoder.data.detect import open_dataset
from mldecoder.data.pictures import Picked
from mldecoder.errors import ConfigError, DataError
from mldecoder.recipes import load_recipe
from mldecoder.reproduce.sources import SOURCES, Count, Source
from mldecoder.reproduce.table import Table

__all__ = ["Check", "Readiness", "check_data", "missing_files"]

_SHOWN = 5


@dataclass(frozen=True)
class Check:
    """One thing that was counted."""

    what: str
    wanted: int
    stated: str
    found: int | None
    ready: bool

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.found is None:
            return "not there"
        if self.ready:
            return "as stated"
        return f"{self.wanted - self.found:,} too few" if self.found < self.wanted else "more than stated"


@dataclass(frozen=True)
class Readiness:
    """What was found in a folder, what is missing, and where it is to be had."""

    source: Source
    found: str
    checks: tuple[Check, ...]
    missing: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether the table can be run in full on it."""
        return not self.missing and all(check.ready for check in self.checks)


def check_data(table: Table, path: str | Path, *, overrides: tuple[str, ...] = ()) -> Readiness:
    """Count a folder's pictures and labels, and look for every picture file.

    Args:
        table: What is to be run.
        path: The folder, as ``--data`` takes it.
        overrides: Of the recipe, such as ``data.options.images=FOLDER``.
    """
    if table.data not in SOURCES:
        raise ConfigError(f"{table.name} needs no data, so there is nothing to check. Run it.")
    source = SOURCES[table.data]
    recipe = load_recipe(source.recipe, overrides)
    options: dict[str, Any] = dict(recipe.data.options)
    if recipe.data.task is not None:
        options["task"] = recipe.data.task
    try:
        dataset = open_dataset(path, options=options)
    except DataError as error:
        counts = (source.train, source.val, source.labels, *source.held_out)
        checks = tuple(_check(count, None) for count in counts)
        return Readiness(source, "", checks, (str(error), f"Wanted: {source.layout}."))
    missing: list[str] = []
    for part, images in (("training", dataset.train), ("validation", dataset.val)):
        if images is not None:
            missing += _missing_lines(part, images)
    checks = (
        _check(source.train, len(dataset.train)),
        _check(source.val, None if dataset.val is None else len(dataset.val)),
        _check(source.labels, len(dataset.labels)),
        *(_check(count, found) for count, found in zip(source.held_out, _held_out(dataset), strict=False)),
    )
    notes = [note for note in dataset.notes if "not on disk" in note]
    return Readiness(source, dataset.description, checks, (*missing, *notes))


def missing_files(images: ImageSet) -> list[str]:
    """Names of the pictures that are not on disk; every folder is listed once."""
    pictures = images.pictures
    while isinstance(pictures, Picked):
        pictures = pictures.pictures
    if not isinstance(pictures, Files):
        return []
    wanted: dict[str, set[str]] = defaultdict(set)
    for i in range(len(images)):
        path = PurePosixPath(images.pictures.name(i))
        wanted[str(path.parent)].add(path.name)
    absent: list[str] = []
    for folder, names in sorted(wanted.items()):
        place = pictures.root / folder
        present = {entry.name for entry in os.scandir(place)} if place.is_dir() else set()
        absent += [f"{folder}/{name}".removeprefix("./") for name in sorted(names - present)]
    return absent


def _held_out(dataset: Dataset) -> tuple[int, int]:
    """How many labels have something known in training, and how many nothing."""
    counts = dataset.train.targets.counts()
    unknown = int(np.count_nonzero(counts.positives + counts.negatives == 0))
    return len(dataset.labels) - unknown, unknown


def _check(count: Count, found: int | None) -> Check:
    ready = found is not None and abs(found - count.number) <= count.about * count.number
    return Check(count.what, count.number, count.stated, found, ready)


def _missing_lines(part: str, images: ImageSet) -> list[str]:
    absent = missing_files(images)
    if not absent:
        return []
    some = ", ".join(absent[:_SHOWN]) + (", ..." if len(absent) > _SHOWN else "")
    return [f"{len(absent):,} of {len(images):,} {part} pictures are not on disk: {some}."]
