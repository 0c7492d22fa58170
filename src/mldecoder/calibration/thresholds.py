"""From scores and truths to thresholds: every cut that can be made is looked at, so the best one is exact.

A threshold lies half-way between the lowest score that is let through and the next lower one.

Shapes: n pictures, k labels.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mldecoder.errors import ConfigError, InputError
from mldecoder.metrics.average_precision import check_scores

__all__ = ["Fit", "Wish", "fit_thresholds", "global_threshold"]

_CHUNK = 2**24  # entries sorted in one go


@dataclass(frozen=True)
class Wish:
    """What thresholds are to reach: the best F1, or at least a precision or recall and then the best of the other."""

    kind: Literal["f1", "precision", "recall"] = "f1"
    value: float = 0.0

    @classmethod
    def read(cls, text: str) -> "Wish":
        """Read ``f1``, ``precision=0.9`` or ``recall=0.8``."""
        kind, _, number = text.partition("=")
        if text == "f1":
            return cls()
        if kind in ("precision", "recall"):
            try:
                value = float(number)
            except ValueError:
                value = -1.0
            if 0 < value <= 1:
                return cls("precision" if kind == "precision" else "recall", value)
        raise ConfigError(f"--wish must be f1, precision=0.9 or recall=0.8 (above 0, at most 1), got {text!r}.")

    def __str__(self) -> str:
        return "best F1" if self.kind == "f1" else f"{self.kind} of at least {self.value:g}"


@dataclass(frozen=True)
class Fit:
    """Thresholds ``(k,)`` float64 and, on the data they were fitted on, what they reach; NaN without a positive."""

    thresholds: Tensor
    precision: Tensor
    recall: Tensor
    reached: Tensor  # bool (k,): whether the wish could be fulfilled
    positives: Tensor  # int64 (k,)

    @property
    def f1(self) -> Tensor:
        """Harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return torch.where(both > 0, 2 * self.precision * self.recall / both, both)


def fit_thresholds(probabilities: Tensor, targets: Tensor, wish: Wish | None = None) -> Fit:
    """The threshold of each label that fulfils the wish best: ``(n, k), (n, k) -> (k,)``.

    Unknown targets (-1) take no part. A precision that cannot be reached gives the cut of the highest precision. Of
    equally good cuts the one that lets fewer through is taken.

    Args:
        probabilities: Scores between 0 and 1.
        targets: 1, 0 or -1.
        wish: The best F1 by default.
    """
    check_scores(probabilities, targets)
    if len(probabilities) == 0:
        raise InputError("Thresholds need at least one picture, got none.")
    step = max(1, _CHUNK // len(probabilities))
    parts = [
        _fit(scores, truths, wish or Wish())
        for scores, truths in zip(
            torch.split(probabilities, step, dim=1), torch.split(targets, step, dim=1), strict=True
        )
    ]
    names = ("thresholds", "precision", "recall", "reached", "positives")
    return Fit(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


def global_threshold(probabilities: Tensor, targets: Tensor, wish: Wish | None = None) -> Fit:
    """One threshold for all labels, over all known entries at once (so with the best OF1): fields ``(1,)``."""
    known = targets >= 0
    return fit_thresholds(probabilities[known].unsqueeze(1), targets[known].unsqueeze(1), wish)


def _fit(probabilities: Tensor, targets: Tensor, wish: Wish) -> Fit:
    scores = probabilities.double().masked_fill(targets < 0, -torch.inf)  # unknown ones go to the end
    scores, order = scores.sort(dim=0, descending=True)
    hits = (targets > 0).gather(0, order).cumsum(0).double()
    let_through = torch.arange(1, len(scores) + 1, device=scores.device, dtype=torch.float64).unsqueeze(1)
    positives = (targets > 0).sum(0)
    below = torch.cat([scores[1:], torch.full_like(scores[:1], -torch.inf)])
    possible = (scores > below) & scores.isfinite()  # equal scores cannot be parted
    precision = hits / let_through
    recall = hits / positives.clamp(min=1)
    value, reached = _worth(precision, recall, wish)
    best = value.masked_fill(~possible, -torch.inf).argmax(dim=0, keepdim=True)  # the first: fewer let through
    cut = (scores.gather(0, best) + below.gather(0, best).clamp(min=0.0)) / 2
    nothing = ~possible.any(dim=0)  # no known entry
    empty = (positives == 0) | nothing
    nan = torch.tensor(torch.nan, dtype=torch.float64, device=scores.device)
    return Fit(
        thresholds=torch.where(nothing, nan, cut[0]),
        precision=torch.where(empty, nan, precision.gather(0, best)[0]),
        recall=torch.where(empty, nan, recall.gather(0, best)[0]),
        reached=reached.gather(0, best)[0] & ~empty,
        positives=positives,
    )


def _worth(precision: Tensor, recall: Tensor, wish: Wish) -> tuple[Tensor, Tensor]:
    """How good each cut is, higher is better, and whether it fulfils the wish."""
    if wish.kind == "f1":
        both = precision + recall
        return torch.where(both > 0, 2 * precision * recall / both.clamp(min=1e-300), 0.0), both >= 0
    wished, other = (precision, recall) if wish.kind == "precision" else (recall, precision)
    reached = wished >= wish.value - 1e-12  # 9 of 10 are 0.9 whatever the rounding
    return torch.where(reached, 1 + other, wished - 1), reached
