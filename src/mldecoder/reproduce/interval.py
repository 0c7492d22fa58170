"""Means over seeds and how sure they are: Student's t, without SciPy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from mldecoder.errors import InputError

__all__ = ["Interval", "interval", "paired", "student_t"]


@dataclass(frozen=True)
class Interval:
    """A mean, the ends of its confidence interval, and how many values it is of; one value has no ends."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        if self.count < 2:
            return f"{self.mean:+.2f}"
        return f"{self.mean:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Mean and the ends of its confidence interval by Student's t; infinitely wide for a single value."""
    if not values:
        raise InputError("An interval needs at least one value, got none.")
    middle, count = mean(values), len(values)
    if count < 2:
        return Interval(middle, -math.inf, math.inf, count)
    half = student_t(0.5 + level / 2, count - 1) * stdev(values) / math.sqrt(count)
    return Interval(middle, middle - half, middle + half, count)


def paired(values: Mapping[int, float], base: Mapping[int, float]) -> Interval | None:
    """The interval of the differences over the seeds that both have; None where they share none."""
    seeds = sorted(values.keys() & base.keys())
    return interval([values[seed] - base[seed] for seed in seeds]) if seeds else None


def student_t(probability: float, freedom: int) -> float:
    """The value that a t-distributed number stays below with this probability, 0.5 to 1.

    Example:
        >>> round(student_t(0.975, 2), 4)
        4.3027
    """
    if not 0.5 <= probability < 1 or freedom < 1:
        raise InputError(f"Take a probability in 0.5..1 and a freedom of 1 or more, got {probability} and {freedom}.")
    low, high = 0.0, 1.0
    while _below(high, freedom) < probability:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _below(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _below(t: float, freedom: int) -> float:
    """P(T < t) for t >= 0 in closed form (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cos, sin = math.cos(angle), math.sin(angle)
    odd = freedom % 2 == 1
    term = cos if odd else 1.0
    total = term if freedom > 1 else 0.0
    for i in range(2 if odd else 1, freedom - 1, 2):
        term *= cos * cos * i / (i + 1)
        total += term
    both_sides = (angle + sin * total) * 2 / math.pi if odd else sin * total
    return 0.5 + both_sides / 2
