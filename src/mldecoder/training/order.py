"""Which pictures come when.

Every random number of a run is a function of its seed and of where the run stands, never of what happened before:
the order of an epoch, the variation of a picture, the dropout of a step. A run that is killed and resumed, or spread
over other processes and workers, therefore sees the same pictures in the same way.

Packed shards are taken a few at a time: shards in random order, cut into windows, pictures in random order within a
window. What is open, or lies in the cache, is bounded, and the order is still computed and never remembered.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler

from mldecoder.data.pictures import Windows
from mldecoder.errors import ConfigError

__all__ = ["EpochBatches", "Key", "seed_everything", "seed_of", "windowed"]

Key = tuple[int, int, int]  # epoch, place in the epoch, picture


def seed_of(*place: int) -> int:
    """A seed of 32 bits from any numbers, each combination another one."""
    return int(np.random.SeedSequence(place).generate_state(1)[0])


def windowed(windows: Windows, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """An order of all pictures that takes a window of shards after the other: ``(n,)``, and each shard's turn.

    Within a window every shard gives its pictures in random order at an even pace, so that any stretch of the order
    has about the same share of each.

    Example:
        >>> order, _ = windowed(Windows(np.array([0, 0, 1, 1, 2, 2]), 1), np.random.default_rng(0))
        >>> (order // 2).tolist()  # one shard at a time
        [2, 2, 0, 0, 1, 1]
    """
    count = int(windows.shard.max(initial=-1)) + 1
    present = np.unique(windows.shard)
    turn = np.zeros(count, dtype=np.int64)
    turn[rng.permutation(present)] = np.arange(len(present))
    order = rng.permutation(len(windows.shard))
    order = order[np.argsort(windows.shard[order], kind="stable")]  # shard by shard
    shard, counts = windows.shard[order], np.bincount(windows.shard, minlength=count)
    within = np.arange(len(order)) - (np.cumsum(counts) - counts)[shard]
    pace = (within + rng.random(len(order))) / counts[shard]  # from 0 to 1 in each shard
    return order[np.argsort(turn[shard] // windows.size + pace, kind="stable")], turn


class EpochBatches(Sampler[list[Key]]):
    """The batches of one process: each epoch a new order of all pictures, cut into steps of ``batch_size``.

    A step is shared by ``world`` processes in ``accumulate`` goes; this sampler yields one process's share, go by go.
    What does not fill the last step is left out; a set smaller than one step is repeated to fill it.
    With ``windows`` each process takes neighbouring shards of a step, so that machines fetch few shards twice; which
    pictures a step has does not depend on the number of processes.

    Args:
        size: How many pictures there are.
        batch_size: Pictures of one optimiser step, over all processes.
        seed: Seed of the order.
        rank: Number of this process.
        world: Number of processes.
        accumulate: Goes a step.
        repeats: How often a picture comes in an epoch.
        windows: Shards of the pictures, where these are to be taken a few shards at a time.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        *,
        seed: int,
        rank: int = 0,
        world: int = 1,
        accumulate: int = 1,
        repeats: int = 1,
        windows: Windows | None = None,
    ) -> None:
        if batch_size % (world * accumulate):
            raise ConfigError(
                f"training.batch_size must divide among {world} processes x {accumulate} goes, got {batch_size}. "
                f"Use {max(1, batch_size // (world * accumulate)) * world * accumulate}."
            )
        self.size, self.batch_size, self.seed, self.repeats = size, batch_size, seed, repeats
        self.rank, self.world, self.accumulate = rank, world, accumulate
        self.windows = windows
        self.epoch, self.first_step = 0, 0

    @property
    def steps(self) -> int:
        """Optimiser steps an epoch."""
        return max(1, self.size // self.batch_size)

    def set_place(self, epoch: int, step: int = 0) -> None:
        """Go to a step of an epoch; the next iteration begins there."""
        self.epoch, self.first_step = epoch, step

    def __len__(self) -> int:
        return (self.steps - self.first_step) * self.accumulate

    def left_out(self) -> list[int]:
        """Pictures that do not come in the epoch: those that fill no step, and with ``repeats`` many more."""
        return [int(i) for i in np.setdiff1d(np.arange(self.size), self._order())]

    def _order(self) -> NDArray[np.int64]:
        rng = np.random.default_rng([self.seed, self.epoch])
        if self.windows is None:
            return self._cut(rng.permutation(self.size))
        order, turn = windowed(self.windows, rng)
        steps = self._cut(order).reshape(self.steps, self.batch_size)
        by_shard = np.argsort(turn[self.windows.shard[steps]], axis=1, kind="stable")
        return np.take_along_axis(steps, by_shard, axis=1).ravel()

    def _cut(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """As many as all steps take, each as often as asked for."""
        return np.resize(np.repeat(order, self.repeats)[: self.size], self.steps * self.batch_size)

    def __iter__(self) -> Iterator[list[Key]]:
        order = self._order()
        share = self.batch_size // (self.world * self.accumulate)
        for step in range(self.first_step, self.steps):
            for go in range(self.accumulate):
                first = step * self.batch_size + (self.rank * self.accumulate + go) * share
                yield [(self.epoch, place, int(order[place])) for place in range(first, first + share)]


def seed_everything(*place: int) -> None:
    """Make torch's generators, on every device in use, a function of the place alone.

    ``torch.manual_seed`` would do, but where CUDA is not in use it keeps a traceback of every call for later.
    """
    seed = seed_of(*place)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
