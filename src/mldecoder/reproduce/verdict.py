"""What the runs say about a claim of the paper, in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mldecoder.reproduce.interval import Interval, paired
from mldecoder.reproduce.table import Claim

__all__ = ["Verdict", "judge"]

Outcome = Literal["holds", "does not hold", "cannot be told", "not run"]
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Verdict:
    """A claim, the interval that speaks to it, and what it says."""

    claim: Claim
    difference: Interval | None
    outcome: Outcome
    text: str


def judge(claim: Claim, values: Mapping[int, float], base: Mapping[int, float]) -> Verdict:
    """Test a claim on the values of its row and its base, by seed.

    ``above`` holds where the whole interval of the paired differences is above 0, and does not where none of it is.
    ``equal`` holds where the whole interval lies within the margin, and does not where it lies to one side of 0 and
    reaches beyond the margin. Everything else cannot be told from so few seeds.
    """
    found = paired(values, base)
    if found is None:
        return Verdict(claim, None, "not run", "not run")
    if claim.kind == "above":
        outcome, why = _above(found)
    else:
        outcome, why = _equal(found, claim.margin)
    return Verdict(claim, found, outcome, f"{why}: {found}")


def _above(found: Interval) -> tuple[Outcome, str]:
    if found.low > 0:
        return "holds", "holds, the whole interval is above 0"
    if found.high <= 0:
        return "does not hold", "does not hold here, the whole interval is below 0"
    return "cannot be told", _unclear(found.count)


def _equal(found: Interval, margin: float) -> tuple[Outcome, str]:
    within = -margin <= found.low and found.high <= margin
    if within:
        return "holds", f"holds within the interval, which stays within ±{margin:g}"
    if found.low > 0 or found.high < 0:
        return "does not hold", "does not hold here, the interval is to one side of 0"
    return "cannot be told", f"{_unclear(found.count)}, the interval holds 0 and differences beyond ±{margin:g}"


def _unclear(count: int) -> str:
    seeds = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return f"cannot be told from {seeds} seed{'' if count == 1 else 's'}"
