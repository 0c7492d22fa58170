import pytest
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.reproduce.interval import paired
from mldecoder.reproduce.table import Claim
from mldecoder.reproduce.verdict import judge

ABOVE = Claim("more", "a", "b", "above")
EQUAL = Claim("the same", "a", "b", "equal", margin=1.0)
BASE = {0: 60.0, 1: 60.2, 2: 59.9}


def shifted(*by: float) -> dict[int, float]:
    return {seed: BASE[seed] + more for seed, more in enumerate(by)}


@pytest.mark.parametrize(
    ("claim", "by", "outcome", "words"),
    [
        (ABOVE, (2.0, 2.1, 1.9), "holds", "holds, the whole interval is above 0"),
        (ABOVE, (-2.0, -2.1, -1.9), "does not hold", "does not hold here"),
        (ABOVE, (2.0, -1.0, 0.5), "cannot be told", "cannot be told from three seeds"),
        (ABOVE, (2.0,), "cannot be told", "cannot be told from one seed: +2.00"),
        (EQUAL, (0.1, 0.0, -0.1), "holds", "holds within the interval, which stays within ±1"),
        (EQUAL, (0.3, 0.31, 0.29), "holds", "holds within the interval"),
        (EQUAL, (2.0, 2.1, 1.9), "does not hold", "does not hold here, the interval is to one side of 0"),
        (EQUAL, (2.0, -2.0, 0.5), "cannot be told", "cannot be told from three seeds, the interval holds 0"),
    ],
)
def test_the_verdict_follows_the_interval(claim: Claim, by: tuple[float, ...], outcome: str, words: str) -> None:
    found = judge(claim, shifted(*by), BASE)
    assert found.outcome == outcome
    assert words in found.text
    assert str(found.difference) in found.text


def test_without_runs_there_is_no_verdict() -> None:
    assert judge(ABOVE, {}, BASE).outcome == "not run"


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=3))
def test_a_claim_never_holds_where_its_interval_allows_the_opposite(by: list[float]) -> None:
    values = shifted(*by)
    found = paired(values, BASE)
    assert found is not None
    above, equal = judge(ABOVE, values, BASE).outcome, judge(EQUAL, values, BASE).outcome
    assert (above == "holds") == (found.low > 0)
    assert (equal == "holds") == (found.low >= -1 and found.high <= 1)
    assert not (above == "holds" and found.high <= 0)
