"""Memory of a step on a GPU, and the largest batch that fits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from mldecoder.bench.place import Place
from mldecoder.bench.work import Step

__all__ = ["SEARCH_END", "capped", "largest", "peak_bytes", "weight_bytes"]

SEARCH_END = 2**17
"""The search for the largest batch ends here."""
_PRECISION = 128  # the search ends when the open interval is this part of the batch


def weight_bytes(model: nn.Module) -> int:
    """Bytes of parameters and buffers."""
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def peak_bytes(make: Callable[[], Step], place: Place, *, weights: int, steps: int = 2) -> tuple[Step, int]:
    """Allocate a step's input, run it, and say how many bytes were in use at most, weights included.

    What other heads hold at the same time is not counted. The first step runs before: it may compile and try kernels.
    """
    before = torch.cuda.memory_allocated(place.device)
    step = make()
    step()
    place.synchronise()
    torch.cuda.reset_peak_memory_stats(place.device)
    for _ in range(steps):
        step()
    place.synchronise()
    return step, torch.cuda.max_memory_allocated(place.device) - before + weights


@contextmanager
def capped(place: Place, cap: int | None, *, held: int = 0) -> Iterator[None]:
    """Let the process allocate no more than ``cap`` bytes beyond what was ``held``; more is out of memory.

    The driver's own memory, some hundred MiB of a real card, is not in the count.
    """
    if cap is None or not place.cuda:
        yield
        return
    torch.cuda.set_per_process_memory_fraction(min(1.0, (cap + held) / place.total_memory), place.device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, place.device)


def largest(fits: Callable[[int], bool], *, end: int = SEARCH_END) -> int:
    """The largest batch up to ``end`` that fits, by doubling and then halving the interval; 0 if not even 1 does.

    It is exact up to 255 images and within a hundredth part above.

    Example:
        >>> largest(lambda batch: batch <= 100)
        100
    """
    good, bad = 0, min(2, end)  # a batch of one has no statistics for a batch norm
    while fits(bad):
        good = bad
        if good == end:
            return end
        bad = min(2 * good, end)
    while bad - good > max(1, good // _PRECISION):
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good
