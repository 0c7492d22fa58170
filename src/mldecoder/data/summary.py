"""What a dataset holds, and what is wrong with it, before anybody trains on it.

Shapes: k labels.
"""

import hashlib
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mldecoder.data.dataset import Dataset, Files, ImageSet, Pictures, TarMembers, Task
from mldecoder.data.decode import decode
from mldecoder.data.pictures import Picked, to_bytes
from mldecoder.errors import DataError

__all__ = ["PartSummary", "Summary", "summarise"]

Progress = Callable[[int, int], None]
_THREADS = 8
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class PartSummary:
    """One part of a dataset."""

    name: str
    images: int
    labels_per_image: float
    most_labels: int
    unlabelled: int
    unknown: float  # share of targets that nobody knows
    positives: NDArray[np.int64]  # (k,)
    negatives: NDArray[np.int64]  # (k,)
    without_positives: tuple[str, ...]
    checked: int  # how many files were read
    missing: tuple[str, ...]
    broken: tuple[tuple[str, str], ...]  # name and reason


@dataclass(frozen=True, eq=False)
class Summary:
    """A dataset at a glance."""

    name: str
    format: str
    description: str
    notes: tuple[str, ...]
    task: Task
    labels: tuple[str, ...]
    parts: tuple[PartSummary, ...]
    same_file: tuple[str, ...]  # pictures that stand in both parts
    same_content: tuple[tuple[str, str], ...]  # training name and validation name of files with equal bytes

    def problems(self) -> list[str]:
        """One line for everything that should be looked at before training."""
        found = []
        for part in self.parts:
            found += _line(part.missing, f"files of the {part.name} part are missing")
            found += _line([f"{n} ({r})" for n, r in part.broken], f"files of the {part.name} part are broken")
            found += _line(part.without_positives, f"labels never occur in the {part.name} part")
        found += _line(self.same_file, "pictures stand in both the training and the validation part")
        pairs = [f"{a} = {b}" for a, b in self.same_content]
        return found + _line(pairs, "pictures of the validation part have the content of a training picture")


def _line(names: Iterable[str], what: str) -> list[str]:
    every = list(names)
    if not every:
        return []
    return [f"{len(every):,} {what}: {', '.join(every[:5])}{', ...' if len(every) > 5 else ''}"]


def summarise(dataset: Dataset, *, check_files: bool | int = True, progress: Progress | None = None) -> Summary:
    """Count labels, look for broken files, and for pictures in both parts.

    Args:
        dataset: What ``open_dataset`` returns.
        check_files: True reads and decodes every file, a number so many of each part, False none.
        progress: Called with the number of files read so far and of all to read.
    """
    sets = [("train", dataset.train)] + ([("val", dataset.val)] if dataset.val is not None else [])
    chosen = [_sample(len(part), check_files) for _, part in sets]
    total, done = sum(map(len, chosen)), 0
    parts, digests = [], []
    for (name, part), indices in zip(sets, chosen, strict=True):
        looks, base = [], done

        def report(count: int, base: int = base) -> None:
            if progress is not None:
                progress(base + count, total)

        looks = _look(part.pictures, indices, report)
        done += len(indices)
        parts.append(_part(name, part, indices, looks))
        digests.append([(digest, int(i)) for i, (digest, _) in zip(indices, looks, strict=True) if digest])
    same_file: tuple[str, ...] = ()
    same_content: tuple[tuple[str, str], ...] = ()
    if dataset.val is not None:
        same_file = _same_file(dataset.train.pictures, dataset.val.pictures)
        same_content = _same_content(dataset.train.pictures, dataset.val.pictures, digests[0], digests[1])
    return Summary(
        dataset.name,
        dataset.format,
        dataset.description,
        dataset.notes,
        dataset.task,
        dataset.labels,
        tuple(parts),
        same_file,
        same_content,
    )


def _sample(n: int, check_files: bool | int) -> NDArray[np.int64]:
    count = n if check_files is True else min(n, int(check_files))
    return np.unique(np.linspace(0, n - 1, count).astype(np.int64)) if count else np.empty(0, np.int64)


def _look(
    pictures: Pictures, indices: NDArray[np.int64], report: Callable[[int], None]
) -> list[tuple[bytes, str | None]]:
    """Digest of each picture (empty where it is missing), and what is wrong with it."""

    def one(i: int) -> tuple[bytes, str | None]:
        try:
            source = pictures.read(i)
        except DataError as error:
            return b"", str(error).removeprefix(f"{pictures.name(i)}: ")
        digest = hashlib.blake2b(to_bytes(source), digest_size=16).digest()
        try:
            decode(source)
        except DataError as error:
            return digest, str(error)
        return digest, None

    found: list[tuple[bytes, str | None]] = []
    # the outer context puts back what the decoding threads do to the list of warnings, which they share
    with warnings.catch_warnings(), ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(indices), _CHUNK):
            found += pool.map(one, indices[start : start + _CHUNK].tolist())
            report(len(found))
    return found


def _part(name: str, part: ImageSet, indices: NDArray[np.int64], looks: list[tuple[bytes, str | None]]) -> PartSummary:
    counts, per_image = part.targets.counts(), part.targets.positives_per_image()
    bad = [(part.pictures.name(int(i)), d, r) for i, (d, r) in zip(indices, looks, strict=True) if r is not None]
    return PartSummary(
        name=name,
        images=len(part),
        labels_per_image=float(per_image.mean()) if len(part) else 0.0,
        most_labels=int(per_image.max(initial=0)),
        unlabelled=int((per_image == 0).sum()),
        unknown=float(counts.unknown.sum() / max(1, len(part) * len(part.labels))),
        positives=counts.positives,
        negatives=counts.negatives,
        without_positives=tuple(part.labels[i] for i in np.flatnonzero(counts.positives == 0)),
        checked=len(indices),
        missing=tuple(picture for picture, digest, _ in bad if not digest),
        broken=tuple((picture, str(reason)) for picture, digest, reason in bad if digest),
    )


def _place(pictures: Pictures, i: int) -> str | None:
    """Where a picture lies on disk, if it has a file of its own."""
    if isinstance(pictures, Picked):
        return _place(pictures.pictures, int(pictures.indices[i]))
    if isinstance(pictures, Files):
        return os.path.normpath(pictures.path(i))
    return f"{pictures.shards[pictures.shard[i]]}/{pictures.names[i]}" if isinstance(pictures, TarMembers) else None


def _same_file(train: Pictures, val: Pictures) -> tuple[str, ...]:
    places = {place for i in range(len(train)) if (place := _place(train, i))}
    return tuple(val.name(i) for i in range(len(val)) if _place(val, i) in places)


def _same_content(
    train: Pictures, val: Pictures, in_train: list[tuple[bytes, int]], in_val: list[tuple[bytes, int]]
) -> tuple[tuple[str, str], ...]:
    by_digest: dict[bytes, list[int]] = defaultdict(list)
    for digest, i in in_train:
        by_digest[digest].append(i)
    return tuple((train.name(by_digest[digest][0]), val.name(i)) for digest, i in in_val if digest in by_digest)
