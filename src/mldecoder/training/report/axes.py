"""Numbers along an axis: where the ticks stand and how they are written."""

import math
from collections.abc import Iterable

__all__ = ["Axis", "make_axis"]


class Axis:
    """Maps values between two bounds to a stretch of pixels, and knows its ticks."""

    def __init__(self, low: float, high: float, step: float, *, start: float, end: float) -> None:
        self.low, self.high, self.step = low, high, step
        self.start, self.end = start, end
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        self.ticks = [i * step for i in range(first, last + 1)]

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def text(self, value: float) -> str:
        """A tick as it is written: all ticks of an axis with the same number of digits."""
        biggest = max(abs(self.low), abs(self.high))
        if biggest < 1e-3 or biggest >= 1e6:
            return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e")
        digits = max(0, -math.floor(math.log10(self.step) + 1e-9))
        return f"{value:,.{digits}f}"


def make_axis(
    values: Iterable[float],
    *,
    start: float,
    end: float,
    bounds: tuple[float, float] | None = None,
    whole: bool = False,
    from_zero: bool = False,
    count: int = 5,
) -> Axis:
    """Choose bounds that hold all values, and about ``count`` round ticks.

    Args:
        values: What will be drawn.
        start: Pixel of the low end.
        end: Pixel of the high end.
        bounds: Fixed bounds instead of those of the values.
        whole: Ticks at whole numbers only, and bounds exactly at the values.
        from_zero: Begin at 0.
        count: How many ticks to aim at.
    """
    drawn = list(values) or [0.0, 1.0]
    low, high = bounds or (min(drawn), max(drawn))
    if from_zero:
        low = min(low, 0.0)
    if high - low < 1e-12 * max(1.0, abs(high)):
        pad = 0.5 if whole or high == 0 else abs(high) * 0.05
        low, high = (low, high + 2 * pad) if from_zero else (low - pad, high + pad)
    step = _round_step((high - low) / count)
    if whole:
        step = max(1.0, step)
    elif bounds is None:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Axis(low, high, step, start=start, end=end)


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1.0, 2.0, 5.0, 10.0) if power * factor >= rough * (1 - 1e-9))
