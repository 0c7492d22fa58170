"""Average precision on the CPU: count the scores around the positives, sort only those right beside them.

Shapes: n images, k classes, c classes of one chunk, p positives of a class.

Average precision needs one number a positive: how many images score as high or higher. Sorting a class answers
that for every image, and nearly all of those answers are thrown away. Instead the scores between the lowest and the
highest positive are laid into equal buckets. A bucket without a positive lies above or below each positive as a
whole, so its images only have to be counted; the images that share a bucket with a positive are sorted. Nothing is
rounded: buckets decide what may be counted together, the scores themselves decide the rest.

With 100 positives among 100,000 images about one image in a hundred is sorted. At worst (most images positive, or a
far outlier that leaves all others in one bucket) all of them are, which takes a little longer than sorting alone.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mldecoder.errors import InputError

__all__ = ["count_columns"]

Floats = NDArray[np.floating[Any]]  # float32 or float64
Kind = TypeVar("Kind", bound=np.generic)

# Entries copied at once by each thread when no chunk is given: 16 MiB of float32.
ENTRIES = 2**22
# Images copied at once while a chunk is turned: few enough for the cache, enough to pay for the call.
BLOCK = 256
# Buckets for each positive, and the most: they are numbered in 16 bits.
BUCKETS, MOST_BUCKETS = 128, 2**16 - 3
# No bucket reaches further: the distance of two scores must be a float32.
FAR = 1e37


def count_columns(scores: Tensor, targets: Tensor, chunk: int | None) -> Tensor:
    """Average precision of each column: ``(n, k), (n, k) -> (k,)``, a chunk of columns a thread at a time."""
    n, k = scores.shape
    threads = torch.get_num_threads()
    if chunk is None:
        chunk = max(1, min(ENTRIES // max(n, 1), -(-k // threads)))
    starts = range(0, k, chunk)
    with ThreadPoolExecutor(threads) as pool:  # numpy lets other threads run while it computes
        parts = list(pool.map(partial(_count_chunk, scores, targets, chunk), starts))
    return torch.from_numpy(np.concatenate([np.empty(0), *parts]))


def _count_chunk(scores: Tensor, targets: Tensor, chunk: int, start: int) -> NDArray[np.float64]:
    """Average precision of the columns from ``start`` on: ``(n, k), (n, k) -> (c,)``."""
    part = slice(start, start + chunk)
    rows, marks = _turned(_as_floats(scores[:, part])), _turned(_as_marks(targets[:, part]))
    if rows.size and np.isnan(lowest := rows.min(axis=1)).any():  # the minimum of anything with NaN is NaN
        bad = start + int(np.isnan(lowest).argmax())
        raise InputError(f"scores must be numbers, got NaN in class {bad}. Did training diverge?")
    return np.array([_of_class(row, mark) for row, mark in zip(rows, marks, strict=True)], dtype=np.float64)


def _as_floats(columns: Tensor) -> Floats:
    """Return scores as float32 where that is exact, else as float64."""
    exact = columns.dtype.is_floating_point and columns.element_size() <= 4
    floats: Floats = columns.to(torch.float32 if exact else torch.float64).numpy()
    return floats


def _as_marks(columns: Tensor) -> NDArray[np.int8]:
    """Return targets of any type as 1, 0, -1 in int8; int8 is taken as it is."""
    if columns.dtype != torch.int8:
        columns = (columns > 0).to(torch.int8) - (columns < 0).to(torch.int8)
    marks: NDArray[np.int8] = columns.numpy()
    return marks


def _turned(columns: NDArray[Kind]) -> NDArray[Kind]:
    """Copy (n, c) columns into contiguous (c, n) rows; in blocks it takes half the time."""
    n, c = columns.shape
    rows = np.empty((c, n), columns.dtype)
    for i in range(0, n, BLOCK):
        rows[:, i : i + BLOCK] = columns[i : i + BLOCK].T
    return rows


def _of_class(scores: Floats, marks: NDArray[np.int8]) -> float:
    """Average precision of one class: ``(n,), (n,) -> ()``."""
    if len(marks) and marks.min() < 0:
        known = marks >= 0
        scores, marks = scores[known], marks[known]
    positives = np.sort(scores[np.flatnonzero(marks > 0)])
    if not len(positives):
        return float("nan")
    hits = len(positives) - np.searchsorted(positives, positives)  # (p,) positives scored as high or higher
    return float((hits / _at_or_above(scores, positives)).mean())


def _at_or_above(scores: Floats, positives: Floats) -> NDArray[np.int64]:
    """Count the scores as high as each of the sorted positives or higher: ``(n,), (p,) -> (p,)``."""
    low, high = np.clip(positives[[0, -1]].astype(np.float64), -FAR, FAR)
    buckets = min(MOST_BUCKETS, BUCKETS * len(positives))
    # With one positive, or equal ones, a bucket as wide as the rounding of the score.
    width = max((high - low) / buckets, 1e-7 * max(abs(low), abs(high)), 1e-30)
    mine = _bucket(positives, low, width, buckets)  # (p,)
    theirs = _bucket(scores, low, width, buckets)  # (n,)

    is_near = np.zeros(buckets + 3, dtype=np.bool_)
    is_near[mine] = True
    far = np.bincount(theirs, minlength=buckets + 3)
    far[is_near] = 0
    far_above = far[::-1].cumsum()[::-1]  # (buckets + 3,) images in this bucket and above, less those near positives

    near = np.sort(scores[np.flatnonzero(is_near.take(theirs))])
    counts: NDArray[np.int64] = far_above[mine] + len(near) - np.searchsorted(near, positives)
    return counts


def _bucket(scores: Floats, low: float, width: float, buckets: int) -> NDArray[np.uint16]:
    """Number of each score's bucket, counted upwards; 0 is below ``low``, the last one above all positives.

    Subtracting, dividing by a positive number, clipping and cutting never turn the order of two numbers round, even
    rounded. That is all that is asked of it.
    """
    number = scores.dtype.type
    with np.errstate(over="ignore"):  # infinite is above all positives, too
        place = np.subtract(scores, number(low))
        place *= number(1 / width)
    np.clip(place, -1, buckets + 1, out=place)
    place += 1
    return place.astype(np.uint16)
