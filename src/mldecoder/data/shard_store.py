"""How bytes come out of shards: from local files, from copies in the cache, or from an address by ranges."""

import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from mldecoder.data import remote
from mldecoder.data.shard_cache import RemoteShard, ShardCache

__all__ = ["CachedShards", "LocalShards", "RangedShards", "ShardStore"]

_OPEN = 32  # a process holds so many shards open


class ShardStore(Protocol):
    """Numbered shards that can be read at any place."""

    places: tuple[str, ...]  # path or address of each

    def read(self, shard: int, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset``; fewer where the shard ends."""
        ...

    def close(self) -> None:
        """Let go of open files; reading opens them again."""
        ...


class _Handle:
    """An open file that is closed when nobody reads from it any more."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


class _OpenFiles(ABC):
    """The files read last, open. Threads and forked workers may read at the same time: pread moves no position."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, _Handle] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key not in {"_open", "_lock"}}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._open, self._lock = OrderedDict(), threading.Lock()

    @abstractmethod
    def descriptor(self, shard: int) -> int:
        """Open a shard."""

    def read(self, shard: int, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset``; fewer where the shard ends."""
        with self._lock:
            handle = self._open.get(shard)
            if handle is not None:
                self._open.move_to_end(shard)
        if handle is None:
            handle = _Handle(self.descriptor(shard))
            with self._lock:
                self._open[shard] = handle
                self._forget()
        return os.pread(handle.descriptor, size, offset)

    def _forget(self) -> None:
        """Close what was read longest ago, and what was deleted: an open file keeps its place on the disk."""
        for shard, handle in list(self._open.items()):
            if os.fstat(handle.descriptor).st_nlink == 0:
                del self._open[shard]
        while len(self._open) > _OPEN:
            self._open.popitem(last=False)

    def close(self) -> None:
        """Let go of open files; reading opens them again."""
        with self._lock:
            self._open.clear()


class LocalShards(_OpenFiles):
    """Tar files on a disk."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        super().__init__()
        self.places = tuple(str(path) for path in paths)

    def descriptor(self, shard: int) -> int:
        """Open a shard."""
        return os.open(self.places[shard], os.O_RDONLY)


class CachedShards(_OpenFiles):
    """Shards at an address, each fetched whole when it is first needed."""

    def __init__(self, shards: Sequence[RemoteShard], cache: ShardCache) -> None:
        super().__init__()
        self.shards, self.cache = tuple(shards), cache
        self.places = tuple(shard.url for shard in shards)

    def descriptor(self, shard: int) -> int:
        """Open a shard's local copy."""
        return self.cache.open(self.shards[shard])

    def fetch(self, shard: int) -> None:
        """See that a local copy is there, for somebody who will read it soon."""
        self.cache.fetch(self.shards[shard])


class RangedShards:
    """Shards at an address, of which only the bytes asked for are fetched, a request a picture."""

    def __init__(self, shards: Sequence[RemoteShard]) -> None:
        self.places = tuple(shard.url for shard in shards)

    def read(self, shard: int, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset``; fewer where the shard ends."""
        return remote.read_range(self.places[shard], offset, size)

    def close(self) -> None:
        """Nothing is held."""
