import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mldecoder.errors import InputError
from mldecoder.reproduce.interval import interval, paired, student_t


@given(freedom=st.integers(1, 60), probability=st.floats(0.5, 0.9995))
def test_student_t_is_that_of_scipy(freedom: int, probability: float) -> None:
    assert student_t(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-7, abs=1e-9)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_the_interval_is_that_of_scipy(values: list[float]) -> None:
    found = interval(values)
    assert found.mean == pytest.approx(sum(values) / len(values), abs=1e-9)
    spread = stats.sem(values)
    if spread > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, loc=found.mean, scale=spread)
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-7)


def test_one_value_has_a_mean_and_no_ends() -> None:
    found = interval([3.0])
    assert (found.mean, found.low, found.high) == (3.0, -math.inf, math.inf)
    assert str(found) == "+3.00"


def test_no_value_has_no_interval() -> None:
    with pytest.raises(InputError, match="at least one value"):
        interval([])


def test_seeds_are_paired_by_their_number() -> None:
    found = paired({0: 5.0, 1: 7.0, 9: 100.0}, {1: 6.0, 0: 3.0, 8: -100.0})
    assert found is not None
    assert (found.mean, found.count) == (1.5, 2)
    assert paired({0: 1.0}, {1: 1.0}) is None
