"""Do things that are said with 80 % happen in 80 % of the cases?

Shapes: n pictures, k labels, e entries, m bins.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mldecoder.config import Task
from mldecoder.metrics.counts import class_numbers

__all__ = ["BINS", "Reliability", "reliability"]

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Entries sorted into bins of equal width by what was said of them: three ``(m,)`` float64 tensors."""

    count: Tensor
    confidence: Tensor  # mean of what was said; NaN in an empty bin
    frequency: Tensor  # how often it was so; NaN in an empty bin

    @property
    def error(self) -> float:
        """Expected calibration error: the mean distance of the two, weighted by the bins' entries."""
        return float(((self.confidence - self.frequency).abs() * self.count).nansum() / self.count.sum())

    def __add__(self, other: "Reliability") -> "Reliability":
        count = self.count + other.count
        mean = [
            (a.nan_to_num() * self.count + b.nan_to_num() * other.count) / count
            for a, b in ((self.confidence, other.confidence), (self.frequency, other.frequency))
        ]
        return Reliability(count, *mean)


def reliability(probabilities: Tensor, targets: Tensor, task: Task, *, bins: int = BINS) -> Reliability:
    """Compare what was said with what was so, on known entries: ``(n, k), (n, k) -> (m,)`` each.

    With ``"multi-label"`` every known entry of every label counts, its probability against its target; with
    ``"single-label"`` every picture, the probability of its best class against whether that was right.
    """
    if task == "single-label":
        numbers = class_numbers(probabilities, targets)
        best = probabilities[numbers >= 0].double().max(dim=1)
        said, was_so = best.values, (best.indices == numbers[numbers >= 0]).double()
    else:
        known = targets >= 0
        said, was_so = probabilities[known].double(), (targets[known] > 0).double()
    place = (said * bins).long().clamp(max=bins - 1)
    count = torch.bincount(place, minlength=bins).double()
    means = [torch.bincount(place, weights=values, minlength=bins) / count for values in (said, was_so)]
    return Reliability(count, *means)
