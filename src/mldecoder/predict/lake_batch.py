"""How many pictures a device scores together best."""

import time
from collections.abc import Callable

import torch

from mldecoder.predict.predictor import Predictor

__all__ = ["LARGEST", "SMALLEST", "fitting_batch", "largest_worth_it"]

SMALLEST, LARGEST = 32, 1024
_GAIN = 1.05  # twice the memory must bring at least this


def fitting_batch(predictor: Predictor, device: torch.device) -> int:
    """A batch size for a device: 32 on the CPU, on an accelerator from where on a larger one is hardly faster."""
    if device.type == "cpu":
        return SMALLEST
    config = predictor.model.config.preprocessing
    picture = torch.zeros(3, *config.size, dtype=torch.uint8)

    def speed(size: int) -> float | None:
        images = picture.expand(size, -1, -1, -1)
        try:
            predictor.probabilities(images)  # the first time allocates; scores come back, so the device is done
            start = time.perf_counter()
            predictor.probabilities(images)
        except torch.OutOfMemoryError:
            return None
        return size / (time.perf_counter() - start)

    chosen = largest_worth_it(speed)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return chosen


def largest_worth_it(speed: Callable[[int], float | None]) -> int:
    """Double while it pays.

    Args:
        speed: Pictures a second with a batch size, or ``None`` where it does not fit in memory.
    """
    size, best = SMALLEST, speed(SMALLEST)
    while best is not None and size < LARGEST:
        faster = speed(2 * size)
        if faster is None or faster < _GAIN * best:
            break
        size, best = 2 * size, faster
    return size
