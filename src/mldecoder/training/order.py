"""Which pictures come when.

Every random number of a run is a function of its seed and of where the run stands, never of what happened before:
the order of an epoch, the variation of a picture, the dropout of a step. A run that is killed and resumed, or spread
over other processes and workers, therefore sees the same pictures in the same way.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler

from mldecoder.errors import ConfigError

__all__ = ["EpochBatches", "Key", "seed_everything", "seed_of"]

Key = tuple[int, int, int]  # epoch, place in the epoch, picture


def seed_of(*place: int) -> int:
    """A seed of 32 bits from any numbers, each combination another one."""
    return int(np.random.SeedSequence(place).generate_state(1)[0])


class EpochBatches(Sampler[list[Key]]):
    """The batches of one process: each epoch a new order of all pictures, cut into steps of ``batch_size``.

    A step is shared by ``world`` processes in ``accumulate`` goes; this sampler yields one process's share, go by go.
    What does not fill the last step is left out; a set smaller than one step is repeated to fill it.

    Args:
        size: How many pictures there are.
        batch_size: Pictures of one optimiser step, over all processes.
        seed: Seed of the order.
        rank: Number of this process.
        world: Number of processes.
        accumulate: Goes a step.
        repeats: How often a picture comes in an epoch.
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
    ) -> None:
        if batch_size % (world * accumulate):
            raise ConfigError(
                f"training.batch_size must divide among {world} processes x {accumulate} goes, got {batch_size}. "
                f"Use {max(1, batch_size // (world * accumulate)) * world * accumulate}."
            )
        self.size, self.batch_size, self.seed, self.repeats = size, batch_size, seed, repeats
        self.rank, self.world, self.accumulate = rank, world, accumulate
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
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.size)
        return np.resize(np.repeat(order, self.repeats)[: self.size], self.steps * self.batch_size)

    def __iter__(self) -> Iterator[list[Key]]:
        order = self._order()
        share = self.batch_size // (self.world * self.accumulate)
        for step in range(self.first_step, self.steps):
            for go in range(self.accumulate):
                first = step * self.batch_size + (go * self.world + self.rank) * share
                yield [(self.epoch, place, int(order[place])) for place in range(first, first + share)]


def seed_everything(*place: int) -> None:
    """Make torch's generators, on every device in use, a function of the place alone.

    ``torch.manual_seed`` would do, but where CUDA is not in use it keeps a traceback of every call for later.
    """
    seed = seed_of(*place)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
