"""Targets as lists against dense rows."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.data.targets import Targets
from mldecoder.errors import InputError
from mldecoder.losses import SparseTargets


@given(b=st.integers(0, 5), n=st.integers(1, 9), default=st.sampled_from([0, -1]), seed=st.integers(0, 99))
def test_dense_rows_come_back_as_they_were(b: int, n: int, default: int, seed: int) -> None:
    dense = torch.randint(-1, 2, (b, n), generator=torch.Generator().manual_seed(seed))
    sparse = SparseTargets.from_dense(dense, default=default)
    assert len(sparse) == b
    assert torch.equal(sparse.to_dense(), dense)
    assert len(sparse.values) == int((dense != default).sum())


@given(
    b=st.integers(0, 4),
    n=st.integers(1, 6),
    default=st.sampled_from([0, -1]),
    with_negatives=st.booleans(),
    data=st.data(),
)
def test_lists_mean_what_they_mean_in_a_dataset(
    b: int, n: int, default: int, with_negatives: bool, data: st.DataObject
) -> None:
    lists = st.lists(st.lists(st.integers(0, n - 1), max_size=6), min_size=b, max_size=b)
    positives, unknown, listed = data.draw(lists), data.draw(lists), data.draw(lists)
    negatives = listed if with_negatives else None
    twin = Targets.from_lists(positives, num_classes=n, negatives=negatives, unknown=unknown, default=default)
    ours = SparseTargets.from_lists(positives, num_classes=n, negatives=negatives, unknown=unknown, default=default)
    assert ours.to_dense().tolist() == twin.rows(np.arange(b)).tolist()
    arrays = SparseTargets.from_arrays(twin.indptr, twin.columns, twin.values, num_classes=n, default=default)
    assert torch.equal(arrays.to_dense(), ours.to_dense())
    assert torch.equal(arrays.columns, ours.columns)


def test_a_batch_moves_as_one() -> None:
    sparse = SparseTargets.from_lists([[1], [0, 2]], num_classes=3)
    moved = sparse.to("meta", non_blocking=True)
    assert (moved.device.type, len(moved), moved.num_classes) == ("meta", 2, 3)
    if torch.cuda.is_available():
        assert sparse.pin_memory().columns.is_pinned()


def test_what_cannot_be_targets_is_refused() -> None:
    with pytest.raises(InputError, match=r"class numbers must lie in 0..2, got 3..3"):
        SparseTargets.from_lists([[3]], num_classes=3)
    with pytest.raises(InputError, match="one list an image, 1 as positives, got 2"):
        SparseTargets.from_lists([[1]], unknown=[[], []], num_classes=3)
    with pytest.raises(InputError, match="default must be 0"):
        SparseTargets.from_lists([[1]], num_classes=3, default=1)
    with pytest.raises(InputError, match="must end at the number of listed targets, 1, got 2"):
        SparseTargets.from_arrays([0, 2], [1], [1], num_classes=3)
    with pytest.raises(InputError, match="a type with a sign"):
        SparseTargets.from_arrays([0, 1], [1], np.ones(1, bool), num_classes=3)
    with pytest.raises(InputError, match="one entry a listed target"):
        SparseTargets.from_arrays([0, 1], [1], [1, 1], num_classes=3)
