"""Shards from an address, kept on the local disk within a bound.

Any number of workers and processes of one machine share the folder. A shard is fetched by one of them, under a lock
that dies with its process, into a file aside; it is whole when it has its name. Before that, room is made by deleting
what was opened longest ago. A file that is deleted while somebody reads it stays readable to them (POSIX).
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mldecoder.cache import cache_folder
from mldecoder.data import remote
from mldecoder.errors import StorageError

__all__ = ["RemoteShard", "ShardCache", "locked"]

_LOCKS = 256  # shards share so many lock files; two of one lock are fetched one after the other
_BLOCK = 1 << 20


class RemoteShard(NamedTuple):
    """A shard at an address, and what the index says of it."""

    url: str
    bytes: int
    sha256: str


class ShardCache:
    """A folder of whole shards, never more than ``limit`` bytes of them.

    Args:
        limit: How many bytes may lie here, those that are being fetched included.
        folder: Where; by default below the package's cache.
    """

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        self.limit = limit
        self.folder = folder or cache_folder() / "shards"
        self._room = self.folder / "lock-room"

    def open(self, shard: RemoteShard) -> int:
        """A descriptor of the shard's local copy, which is fetched where it is missing."""
        while True:
            path = self.fetch(shard)
            try:
                handle = os.open(path, os.O_RDONLY)
            except FileNotFoundError:  # another process needed the room in this very moment
                continue
            os.utime(handle)
            return handle

    def fetch(self, shard: RemoteShard) -> Path:
        """The shard's local copy; others that want it meanwhile wait for it."""
        path = self._path(shard)
        if _size(path) == shard.bytes:
            return path
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self._lock_of(path)):
            if _size(path) != shard.bytes:
                part = self.folder / f"{path.name}.{shard.bytes}.part"
                self._make_room(shard.bytes, part)
                try:
                    remote.download(shard.url, part)
                    _check(part, shard)
                    with locked(self._room):  # who counts sees it under one of its names
                        part.replace(path)
                finally:
                    part.unlink(missing_ok=True)
        return path

    def _path(self, shard: RemoteShard) -> Path:
        # content is part of the name: a set that was packed again at the same address is another one
        words = "\n".join((shard.url.partition("?")[0], shard.sha256))
        return self.folder / f"{hashlib.sha256(words.encode()).hexdigest()[:16]}-{remote.file_name(shard.url)}"

    def _lock_of(self, path: Path) -> Path:
        return self.folder / f"lock-{int(path.name[:8], 16) % _LOCKS:03}"

    def _make_room(self, size: int, part: Path) -> None:
        """Delete the shards opened longest ago until ``size`` more fit, and lay claim to the room."""
        with locked(self._room):
            held: list[tuple[float, int, Path]] = []
            claimed = 0
            for file in self.folder.iterdir():
                if file.suffix == ".part" and not self._is_left_over(file):
                    claimed += int(file.name.rpartition(".part")[0].rpartition(".")[2])  # its size when it is whole
                elif file.suffix == ".tar":
                    status = file.stat()
                    held.append((status.st_mtime, status.st_size, file))
            room = self.limit - claimed - size - sum(its for _, its, _ in held)
            for _, its, file in sorted(held):
                if room >= 0:
                    break
                file.unlink(missing_ok=True)
                room += its
            part.touch()

    def _is_left_over(self, part: Path) -> bool:
        """Whether nobody is fetching this any more; then it is deleted."""
        with locked(self._lock_of(part), wait=False) as free:
            if free:
                part.unlink(missing_ok=True)
            return free


def _check(path: Path, shard: RemoteShard) -> None:
    """Refuse a copy that is not what the index was written for."""
    size, where = _size(path) or 0, remote.shown(shard.url)
    if size != shard.bytes:
        what = "cut short" if size < shard.bytes else "another file"
        raise StorageError(
            f"{where} must have the {shard.bytes:,} bytes that its index says, got {size:,}: it is {what}. "
            f"Copy the shards and their index again."
        )
    digest = hashlib.sha256()
    with path.open("rb") as file:
        os.fsync(file.fileno())  # a file that has its name is whole, even if the machine loses power
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != shard.sha256:
        raise StorageError(
            f"{where} was changed after its index was written: its SHA-256 is {digest.hexdigest()[:12]}..., not "
            f"{shard.sha256[:12]}.... Copy the shards and their index again."
        )


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock that ends with the process, however it ends; without ``wait`` says whether it could be had."""
    import fcntl

    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # at once, also where a process forked meanwhile has the file open


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
