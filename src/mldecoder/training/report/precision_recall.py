"""Precision-recall curves of any number of entries, at a few exactly computed points.

Shapes: n pictures, k labels, t thresholds.
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Point", "curve"]

_ENTRIES = 2**22
"""Entries looked at in one go."""


class Point(NamedTuple):
    """Precision and recall, as fractions, when entries count from the threshold on."""

    threshold: float
    recall: float
    precision: float


def curve(scores: Tensor, targets: Tensor, *, points: int = 200) -> list[Point]:
    """Precision and recall at up to ``points`` thresholds, by rising recall; [] without positives.

    The thresholds are scores of positives, evenly spaced by rank. Only positives are sorted, and every entry is
    looked up among the thresholds, so that all entries of a large validation part can be taken together.

    Args:
        scores: Logits or probabilities, (n,) or (n, k).
        targets: 1, 0, or -1 for unknown, of the same shape.
        points: How many thresholds at most.
    """
    scores, targets = scores.flatten(), targets.flatten()
    positive = scores[targets > 0].sort().values
    count = len(positive)
    if count == 0:
        return []
    places = torch.linspace(0, count - 1, min(points, count), dtype=torch.float64).round().long()
    thresholds = torch.unique(positive[places])  # (t,) rising
    found = count - torch.searchsorted(positive, thresholds)  # positives scored as high or higher

    reached = torch.zeros(len(thresholds) + 1, dtype=torch.long)  # entries by how many thresholds they reach
    for start in range(0, len(scores), _ENTRIES):
        part = slice(start, start + _ENTRIES)
        known = scores[part][targets[part] >= 0]
        reached += torch.searchsorted(thresholds, known, right=True).bincount(minlength=len(reached))
    seen = reached.flip(0).cumsum(0).flip(0)[1:]  # entries scored as high or higher

    recall, precision = found.double() / count, found.double() / seen
    rows = torch.stack([thresholds.double(), recall, precision], dim=1).flip(0)
    return [Point(*row) for row in rows.tolist()]
