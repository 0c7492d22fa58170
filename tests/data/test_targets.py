import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.data.dataset import UNKNOWN, Targets
from mldecoder.errors import DataError

STRENGTH = {1: 2, 0: 1, UNKNOWN: 0}


@st.composite
def entries(draw: st.DrawFn) -> tuple[int, int, int, list[tuple[int, int, int]]]:
    n, k = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    one = st.tuples(st.integers(0, n - 1), st.integers(0, k - 1), st.sampled_from([1, 0, UNKNOWN]))
    return n, k, draw(st.sampled_from([0, UNKNOWN])), draw(st.lists(one, max_size=30))


def slow(n: int, k: int, default: int, listed: list[tuple[int, int, int]]) -> list[list[int]]:
    """The obvious twin: a dense table where the stronger statement wins."""
    said: dict[tuple[int, int], int] = {}
    for row, column, value in listed:
        old = said.get((row, column))
        if old is None or STRENGTH[value] > STRENGTH[old]:
            said[row, column] = value
    return [[said.get((i, j), default) for j in range(k)] for i in range(n)]


def build(n: int, k: int, default: int, listed: list[tuple[int, int, int]]) -> Targets:
    rows, columns, values = (np.array([entry[i] for entry in listed], dtype=int) for i in range(3))
    return Targets.from_triplets(rows, columns, values, num_rows=n, num_classes=k, default=default)


@given(entries())
def test_targets_equal_a_dense_table(case: tuple[int, int, int, list[tuple[int, int, int]]]) -> None:
    dense, targets = slow(*case), build(*case)
    assert [targets.row(i).tolist() for i in range(len(targets))] == dense
    assert targets.rows(np.arange(len(targets))).tolist() == dense
    counts = targets.counts()
    for j in range(targets.num_classes):
        column = [row[j] for row in dense]
        assert counts.positives[j] == column.count(1)
        assert counts.negatives[j] == column.count(0)
        assert counts.unknown[j] == column.count(UNKNOWN)
    assert targets.positives_per_image().tolist() == [row.count(1) for row in dense]
    assert [targets.positives(i).tolist() for i in range(len(targets))] == [
        [j for j, value in enumerate(row) if value == 1] for row in dense
    ]


@given(entries(), st.data())
def test_selecting_pictures_and_labels_equals_selecting_rows_and_columns(
    case: tuple[int, int, int, list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    n, k = case[:2]
    dense, targets = np.array(slow(*case)), build(*case)
    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=9))
    columns = data.draw(st.permutations(range(k)).flatmap(lambda p: st.integers(1, k).map(lambda m: p[:m])))
    chosen = targets.select(rows)
    np.testing.assert_array_equal(chosen.rows(np.arange(len(rows))), dense[rows].reshape(len(rows), k))
    np.testing.assert_array_equal(targets.rows(rows), dense[rows].reshape(len(rows), k))
    np.testing.assert_array_equal(targets.keep_classes(columns).rows(np.arange(n)), dense[:, columns])


def test_lists_may_say_yes_no_and_unknown() -> None:
    targets = Targets.from_lists([[0], []], negatives=[[1], [0]], unknown=[[0, 2], []], num_classes=3, default=UNKNOWN)
    assert targets.rows([0, 1]).tolist() == [[1, 0, UNKNOWN], [0, UNKNOWN, UNKNOWN]]


def test_a_label_index_beyond_the_labels_is_an_error() -> None:
    with pytest.raises(DataError, match=r"must lie in 0\.\.2, got 1\.\.3"):
        Targets.from_lists([[1, 3]], num_classes=3)


def test_lists_of_different_lengths_are_an_error() -> None:
    with pytest.raises(DataError, match="2 positives, got 1"):
        Targets.from_lists([[0], [0]], negatives=[[1]], num_classes=2)


@pytest.mark.slow
def test_targets_as_large_as_open_images_fit_in_memory() -> None:
    n, k, each = 9_000_000, 9_600, 6
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(n), each)
    columns = rng.integers(0, k, n * each, dtype=np.int32)
    values = rng.integers(0, 2, n * each, dtype=np.int8)
    targets = Targets.from_triplets(rows, columns, values, num_rows=n, num_classes=k, default=UNKNOWN)
    size = targets.indptr.nbytes + targets.columns.nbytes + targets.values.nbytes
    assert size < 400e6
    assert targets.row(n - 1).shape == (k,)
