"""Fetching shards before their turn.

A sampler says which pictures come next, and so which shards. A scout runs ahead of the loader over the same batches and
has each new shard fetched into the cache by threads of the main process; whoever reads it finds it there, or waits for
it. What goes wrong here is not told: the reader meets it too, and tells it with the picture it wanted.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from mldecoder.data.dataset import ImageSet
from mldecoder.data.pictures import Picked, TarMembers
from mldecoder.data.shard_store import CachedShards
from mldecoder.errors import MLDecoderError

__all__ = ["ShardsAhead", "with_shards_ahead"]

_THREADS = 4
_Entry = TypeVar("_Entry")


class ShardsAhead(Sampler[list[_Entry]], Generic[_Entry]):
    """The batches of another sampler, with their shards fetched a while before they come.

    Args:
        batches: Batches that can be gone through any number of times.
        shard_of: The shard of each picture.
        index_of: The picture of an entry of a batch.
        fetch: Brings a shard near.
        ahead: How many pictures the scout looks ahead.
    """

    def __init__(
        self,
        batches: Iterable[list[_Entry]],
        shard_of: NDArray[np.int32],
        index_of: Callable[[_Entry], int],
        fetch: Callable[[int], None],
        ahead: int,
    ) -> None:
        self.batches, self.shard_of, self.index_of, self.fetch, self.ahead = batches, shard_of, index_of, fetch, ahead

    def __iter__(self) -> Iterator[list[_Entry]]:
        wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        threads = [threading.Thread(target=self._fetch_all, args=(wanted,), daemon=True) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        scout, seen = iter(self.batches), set[int]()
        lead = 0  # pictures that the scout has seen and the loader has not
        try:
            for batch in self.batches:
                while lead < self.ahead + len(batch) and (next_ := next(scout, None)) is not None:
                    lead += len(next_)
                    shards = {int(self.shard_of[self.index_of(entry)]) for entry in next_}
                    for shard in sorted(shards - seen):
                        wanted.put(shard)
                    seen |= shards
                lead -= len(batch)
                yield batch
        finally:
            while not wanted.empty():
                try:
                    wanted.get_nowait()
                except queue.Empty:
                    break
            for _ in threads:
                wanted.put(None)

    def _fetch_all(self, wanted: "queue.SimpleQueue[int | None]") -> None:
        while (shard := wanted.get()) is not None:
            try:
                self.fetch(shard)
            except (MLDecoderError, OSError):
                continue


def with_shards_ahead(
    batches: Iterable[list[_Entry]], image_set: ImageSet, index_of: Callable[[_Entry], int], *, world: int
) -> Iterable[list[_Entry]]:
    """The same batches; where the set's shards come through the cache, they are fetched one window ahead.

    Args:
        batches: One process's batches.
        image_set: The set they are of.
        index_of: The picture of an entry of a batch.
        world: Number of processes that share a window.
    """
    pictures = image_set.pictures
    base = pictures.pictures if isinstance(pictures, Picked) else pictures
    if not isinstance(base, TarMembers) or not isinstance(base.store, CachedShards) or base.window is None:
        return batches
    shard_of = base.shard[pictures.indices] if isinstance(pictures, Picked) else base.shard
    shards = max(1, len(np.unique(shard_of)))
    window = len(shard_of) * min(base.window, shards) // shards  # pictures of a window, on average
    return ShardsAhead(batches, shard_of, index_of, base.store.fetch, window // world)
