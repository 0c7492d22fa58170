"""Splitting a validation part off, so that every label keeps its share.

Iterative stratification (Sechidis, Tsoumakas, Vlahavas 2011) for two parts: the label with the fewest pictures left is
dealt with first, as it is the hardest to place. All pictures of a label are dealt with at once, so the time is a
matter of labels and entries, not of pictures times labels.

Shapes: n pictures, k labels.
"""

import numpy as np
from numpy.typing import NDArray

from mldecoder.data.dataset import ImageSet, Targets
from mldecoder.errors import DataError

__all__ = ["split_off", "stratify"]

_STEPS = 8  # a label's pictures are chosen in so many goes, each looking at what the last one left


def split_off(train: ImageSet, fraction: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """Part a set into a larger one to train on and a smaller one to validate on.

    Args:
        train: What to part.
        fraction: The smaller part's share, between 0 and 1.
        seed: Chooses the pictures; the same seed gives the same parts.
    """
    if not 0 < fraction < 1:
        raise DataError(f"The fraction to split off must lie between 0 and 1, got {fraction}.")
    if len(train) < 2:
        raise DataError(f"At least 2 pictures are needed to split some off, got {len(train)}.")
    chosen = stratify(train.targets, fraction, seed)
    return train.select(np.flatnonzero(~chosen)), train.select(np.flatnonzero(chosen))


def stratify(targets: Targets, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which pictures to split off: ``(n,)``. Every label keeps a picture to train on."""
    rng = np.random.default_rng(seed)
    n, k = len(targets), targets.num_classes
    row, column = targets.row_of_entry(), targets.columns.astype(np.int64)
    positive = targets.values == 1
    row, column = row[positive], column[positive]
    by_class = row[np.argsort(column, kind="stable")]  # pictures of label 0, then of label 1, ...
    starts = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=k))])
    by_row = targets.select(np.arange(n))
    left = np.bincount(column, minlength=k)  # pictures of each label that are not placed yet
    wish = fraction * left  # how many of them the smaller part still wants
    to_keep = np.ones(k, dtype=bool)  # labels that have nothing to train on yet
    free = np.ones(n, dtype=bool)
    chosen = np.zeros(n, dtype=bool)
    carry = 0.0  # rounding, passed on from label to label

    def place(pictures: NDArray[np.int64], smaller: bool) -> None:
        free[pictures] = False
        chosen[pictures] = smaller
        part = by_row.select(pictures)
        counts = np.bincount(part.columns[part.values == 1], minlength=k)
        np.subtract(left, counts, out=left)
        if smaller:
            np.subtract(wish, counts, out=wish)
        else:
            to_keep[counts > 0] = False

    def appeal(pictures: NDArray[np.int64]) -> NDArray[np.float64]:
        """How much the smaller part lacks the labels of each picture."""
        part = by_row.select(pictures)
        lack = wish / np.maximum(left, 1) - fraction
        weights = np.where(part.values == 1, lack[part.columns], 0.0)
        return np.bincount(part.row_of_entry(), weights=weights, minlength=len(pictures)).astype(np.float64)

    while left.any():
        label = int(np.where(left > 0, left, n + 1).argmin())
        pictures = by_class[starts[label] : starts[label + 1]]
        pictures = rng.permutation(pictures[free[pictures]])
        wanted = max(0.0, wish[label]) + carry
        take = min(max(0, round(wanted)), len(pictures) - int(to_keep[label]))
        carry = min(0.5, max(-0.5, wanted - take))
        for share in np.array_split(np.arange(take), _STEPS):
            if not len(share):
                break
            best = np.argsort(-appeal(pictures), kind="stable")[: len(share)]
            place(pictures[best], True)
            pictures = np.delete(pictures, best)
        place(pictures, False)
    rest = rng.permutation(np.flatnonzero(free))
    take = min(max(0, round(fraction * n) - int(chosen.sum())), len(rest))
    chosen[rest[:take]] = True
    if not chosen.any():  # so few pictures that every label keeps its only one
        chosen[rng.integers(n)] = True
    return chosen
