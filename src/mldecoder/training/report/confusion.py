"""Which class is taken for which.

Shapes: n pictures, k classes, w wrong ones.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mldecoder.metrics.counts import class_numbers

__all__ = ["Pair", "confused_pairs", "confusion_matrix", "wrong_pictures"]


class Pair(NamedTuple):
    """Pictures of one class that were taken for another."""

    truth: int
    guess: int
    pictures: int
    of: int  # pictures of the true class


def wrong_pictures(scores: Tensor, targets: Tensor) -> Tensor:
    """Pictures whose best class is known to be wrong: ``(n, k), (n, k) -> (w,)``.

    A picture without a known class, or whose best class is unknown for it, is not wrong.
    """
    truth, _, said = _outcomes(scores, targets)
    return ((truth >= 0) & (said == 0)).nonzero().flatten()


def confused_pairs(scores: Tensor, targets: Tensor, *, limit: int = 20) -> list[Pair]:
    """The pairs that are confused most often, most often first."""
    truth, guess, said = _outcomes(scores, targets)
    k = scores.shape[1]
    of = truth[truth >= 0].bincount(minlength=k)
    wrong = (truth >= 0) & (said == 0)
    pairs, counts = torch.unique(truth[wrong] * k + guess[wrong], return_counts=True)
    best = counts.argsort(descending=True, stable=True)[:limit]
    found = zip(pairs[best].tolist(), counts[best].tolist(), strict=True)
    return [Pair(pair // k, pair % k, count, int(of[pair // k])) for pair, count in found]


def confusion_matrix(scores: Tensor, targets: Tensor) -> Tensor:
    """Pictures by true class (rows) and best class (columns): ``(k, k)``."""
    truth, guess, said = _outcomes(scores, targets)
    k = scores.shape[1]
    known = (truth >= 0) & (said >= 0)
    return (truth[known] * k + guess[known]).bincount(minlength=k * k).reshape(k, k)


def _outcomes(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """True class (-1 without one), best class, and the target of the best class: three ``(n,)``."""
    guess = scores.argmax(dim=1)
    return class_numbers(scores, targets), guess, targets.gather(1, guess.unsqueeze(1)).squeeze(1)
