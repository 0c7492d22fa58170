"""Packing any dataset into tar shards with an index.

Shards are made one after the other. Each leaves a record (its rows of the index) in a folder aside, so that a packing
which was killed goes on behind the last whole shard. The index comes last; then the records go.
"""

import json
import shutil
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mldecoder import __version__
from mldecoder.data.dataset import Dataset, ImageSet
from mldecoder.data.layout import Part
from mldecoder.data.options import DataOptions
from mldecoder.data.remote import is_url
from mldecoder.data.shard_cache import locked
from mldecoder.data.shard_index import FILE, Header, ShardInfo, read_header, write_index
from mldecoder.data.shard_plan import RECORDS, claim, finished, open_parts, plan_of, write_text
from mldecoder.data.shard_tar import Content, ShardFile, content_of
from mldecoder.errors import ConfigError, DataError

__all__ = ["Broken", "PackSettings", "Packed", "pack"]

Progress = Callable[[int, int], None]
_THREADS, _AHEAD = 4, 32  # pictures are read by so many threads, and so many wait to be written
_KEY = b"mldecoder"


@dataclass(frozen=True)
class PackSettings:
    """How to pack.

    Args:
        shard_mb: A shard ends with the picture that brings it to so many MB.
        shard_pictures: A shard ends with so many pictures.
        size: Pictures whose shorter side is longer are made smaller; None copies every file byte for byte.
        shuffle: Mix the training part, so that each shard is a sample of it.
        seed: Of the mixing.
        check: Decode each picture, and leave out those that cannot be.
    """

    shard_mb: float = 256.0
    shard_pictures: int | None = None
    size: int | None = None
    shuffle: bool = True
    seed: int = 0
    check: bool = True

    def __post_init__(self) -> None:
        if self.shard_mb <= 0:
            raise ConfigError(f"A shard must have more than 0 MB, got {self.shard_mb}.")
        for name in ("shard_pictures", "size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be 1 or more, got {value}.")


@dataclass(frozen=True)
class Broken:
    """A picture that was left out, and why."""

    part: Part
    name: str
    reason: str


@dataclass(frozen=True)
class Packed:
    """What a packing left in its folder."""

    folder: Path
    shards: tuple[ShardInfo, ...]
    broken: tuple[Broken, ...]
    kept: int  # shards that were there from an earlier go

    @property
    def counts(self) -> dict[str, int]:
        """Pictures of each part."""
        found: dict[str, int] = {}
        for shard in self.shards:
            found[shard.part] = found.get(shard.part, 0) + shard.samples
        return found


def pack(
    data: str | Path,
    out: str | Path,
    settings: PackSettings | None = None,
    *,
    format: str | None = None,
    options: Mapping[str, object] | DataOptions | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Pack a dataset into ``out``: ``train-000000.tar`` and so on, ``shards.parquet``, ``classes.txt``.

    The same call goes on where an earlier one was killed, and does nothing where it was finished.

    Args:
        data: Whatever ``open_dataset`` opens.
        out: A folder on this machine.
        settings: How to pack.
        format: Format of the data; None finds out.
        options: How to read the data.
        progress: Called with the number of pictures done and of all.

    Example:
        >>> pack("scenes", "packed", options={"count": 10}).counts  # doctest: +SKIP
        {'train': 10, 'val': 2}
    """
    if is_url(out):
        raise ConfigError(f"Shards are written to a folder on this machine, got {out}. Pack there, then copy it.")
    settings, folder = settings or PackSettings(), Path(out).expanduser()
    dataset, parts = open_parts(data, format, DataOptions.of(options))
    plan = plan_of(dataset, parts, asdict(settings))
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file. Name a folder for the shards.")
    records = folder / RECORDS
    if finished(folder, plan):
        return _result(folder, _broken_list(folder), kept=None)
    records.mkdir(parents=True, exist_ok=True)
    # the outer context puts back what the decoding threads do to the list of warnings, which they share
    with warnings.catch_warnings(), locked(records / "lock", wait=False) as mine:
        if not mine:
            raise ConfigError(f"Another process is packing into {folder}. Wait for it, or name another folder.")
        claim(folder, plan)
        work = _Packing(folder, settings, sum(map(len, parts.values())), progress or (lambda _done, _total: None))
        for part, image_set in parts.items():
            work.pack_part(part, image_set)
        work.finish(dataset, parts, plan)
    shutil.rmtree(records)
    return _result(folder, work.broken, work.kept)


class _Packing:
    """A packing on its way: shards so far, and their records."""

    def __init__(self, folder: Path, settings: PackSettings, total: int, progress: Progress) -> None:
        self.folder, self.settings, self.total, self.progress = folder, settings, total, progress
        self.shards: list[ShardInfo] = []
        self.broken: list[Broken] = []
        self.kept = self.done = 0

    def pack_part(self, part: Part, image_set: ImageSet) -> None:
        """Write the shards of a part, from behind the last whole one."""
        order = np.arange(len(image_set))
        if part == "train" and self.settings.shuffle:
            order = np.random.default_rng(self.settings.seed).permutation(order)
        number, place = 0, 0
        while (kept := self._kept(part, number)) is not None:
            number, place = number + 1, kept
        self._advance(place)
        waiting = _contents(image_set, order[place:], self.settings)
        try:
            while place < len(order):
                place = self._shard(part, number, image_set, waiting, place)
                number += 1
        finally:
            waiting.close()

    def _shard(self, part: Part, number: int, image_set: ImageSet, waiting: "Iterator[_Read]", first: int) -> int:
        """Write one shard from pictures as they come; returns the place of the next one."""
        file = ShardFile(self.folder / f"{part}-{number:06}.tar", len(self.shards))
        broken: list[Broken] = []
        place = first
        try:
            for i, content in waiting:
                if isinstance(content, DataError):
                    name = image_set.pictures.name(i)
                    reason = str(content).removeprefix(f"{name}: ").removesuffix(".")
                    broken.append(Broken(part, name, reason))
                else:
                    file.add(f"{place:09}", content, image_set, i)
                place += 1
                self._advance(1)
                if file.size >= 1e6 * self.settings.shard_mb or len(file) == self.settings.shard_pictures:
                    break
            self.broken += broken
            if not len(file):  # nothing but broken files was left
                file.discard()
                return place
            table, size, digest = file.finish()
        except BaseException:
            file.discard()
            raise
        info = ShardInfo(file.path.name, part, len(table), size, digest)
        self.shards.append(info)
        self._write_record(info, table, place, broken)
        return place

    def _write_record(self, info: ShardInfo, table: Any, place: int, broken: Sequence[Broken]) -> None:  # noqa: ANN401
        import pyarrow.parquet as pq

        content = {"shard": asdict(info), "next": place, "broken": [asdict(one) for one in broken]}
        path = self._record(info.file)
        aside = path.with_suffix(".part")
        pq.write_table(table.replace_schema_metadata({_KEY: json.dumps(content).encode()}), aside)
        aside.replace(path)

    def _kept(self, part: Part, number: int) -> int | None:
        """Take over a shard that an earlier go finished; returns the place of the next picture."""
        import pyarrow.parquet as pq

        file = f"{part}-{number:06}.tar"
        if not self._record(file).is_file():
            return None
        content = json.loads(pq.read_schema(self._record(file)).metadata[_KEY])
        info = ShardInfo(**content["shard"])
        path = self.folder / file
        if not path.is_file() or path.stat().st_size != info.bytes:
            return None  # somebody took it away: it is made again
        self.shards.append(info)
        self.broken += [Broken(**one) for one in content["broken"]]
        self.kept += 1
        return int(content["next"])

    def _record(self, file: str) -> Path:
        return self.folder / RECORDS / f"{file}.parquet"

    def _advance(self, count: int) -> None:
        self.done += count
        self.progress(self.done, self.total)

    def finish(self, dataset: Dataset, parts: Mapping[Part, ImageSet], plan: str) -> None:
        """Write the lists and, last of all, the index."""
        import pyarrow.parquet as pq

        if not any(shard.part == "train" for shard in self.shards):
            reason = f"; the first: {self.broken[0].name}: {self.broken[0].reason}" if self.broken else ""
            raise DataError(f"No picture of the training part can be packed{reason}.")
        write_text(self.folder / "classes.txt", "".join(f"{label}\n" for label in dataset.labels))
        if self.broken:
            lines = (json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in self.broken)
            write_text(self.folder / "broken.jsonl", "".join(lines))
        packed = {shard.part for shard in self.shards}
        header = Header(
            name=dataset.name,
            task=dataset.task,
            labels=dataset.labels,
            shards=tuple(self.shards),
            defaults={part: its.targets.default for part, its in parts.items() if part in packed},
            source=dataset.description,
            package=__version__,
            plan=plan,
        )
        tables = (pq.read_table(self._record(shard.file)).replace_schema_metadata() for shard in self.shards)
        write_index(self.folder / FILE, header, tables)


_Read = tuple[int, Content | DataError]


def _contents(image_set: ImageSet, order: NDArray[np.int64], settings: PackSettings) -> "Generator[_Read, None, None]":
    """The pictures in order, read a little ahead by threads; what cannot be read comes as its error."""

    def one(i: int) -> _Read:
        try:
            return i, content_of(image_set, i, size=settings.size, check=settings.check)
        except DataError as error:
            return i, error

    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[_Read]] = deque()
        try:
            for i in order.tolist():
                waiting.append(pool.submit(one, i))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _result(folder: Path, broken: Sequence[Broken], kept: int | None) -> Packed:
    header = read_header(folder / FILE)
    return Packed(folder, header.shards, tuple(broken), len(header.shards) if kept is None else kept)


def _broken_list(folder: Path) -> list[Broken]:
    path = folder / "broken.jsonl"
    if not path.is_file():
        return []
    return [Broken(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
