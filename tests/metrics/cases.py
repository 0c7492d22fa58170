"""Scores and targets for metrics, with ties, unknown entries and every dtype."""

import torch
from torch import Tensor

__all__ = ["random_case"]


def random_case(
    n: int, k: int, seed: int, *, levels: int, rate: float, unknown: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Scores ``(n, k)`` of so many levels either side of 0, and targets 1, 0, -1; few levels make ties."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.randint(-levels, levels, (n, k), generator=g).to(dtype)
    if dtype.is_floating_point:
        scores = scores / 3
    targets = (torch.rand(n, k, generator=g) < rate).long()
    targets[torch.rand(n, k, generator=g) < unknown] = -1
    return scores, targets
