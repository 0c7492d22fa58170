import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.data.dataset import Arrays, ImageSet, Targets
from mldecoder.data.split import split_off, stratify
from mldecoder.errors import DataError


def random_targets(n: int, k: int, seed: int = 0) -> Targets:
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(rng.random((n, k)) < np.minimum(0.5, 1 / np.arange(2, k + 2) ** 1.1))
    return Targets.from_triplets(rows, columns, np.ones(len(rows)), num_rows=n, num_classes=k)


def test_every_label_keeps_its_share() -> None:
    targets = random_targets(5000, 40)
    chosen = stratify(targets, 0.2, seed=1)
    share = targets.select(np.flatnonzero(chosen)).counts().positives - 0.2 * targets.counts().positives
    assert abs(share).max() < 2
    assert abs(chosen.mean() - 0.2) < 0.02


def test_one_label_a_picture_is_shared_evenly() -> None:
    targets = Targets.from_classes(np.arange(1000) % 10, num_classes=10)
    chosen = stratify(targets, 0.1, seed=0)
    assert targets.select(np.flatnonzero(chosen)).counts().positives.tolist() == [10] * 10


def test_many_classes_of_few_pictures_still_give_a_validation_part() -> None:
    targets = Targets.from_classes(np.arange(900) // 3, num_classes=300)
    chosen = stratify(targets, 0.1, seed=0)
    assert chosen.sum() == 90


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=2, max_size=60), st.floats(0.05, 0.6), st.integers(0, 9)
)
def test_no_label_loses_all_its_pictures_to_the_smaller_part(rows: list[list[int]], part: float, seed: int) -> None:
    targets = Targets.from_lists(rows, num_classes=6)
    chosen = stratify(targets, part, seed)
    assert chosen.any()
    assert not chosen.all()
    assert np.array_equal(chosen, stratify(targets, part, seed))
    if chosen.sum() > 1:
        kept = targets.select(np.flatnonzero(~chosen)).counts().positives
        assert not ((kept == 0) & (targets.counts().positives > 0)).any()


def test_a_hundred_thousand_pictures_take_a_moment() -> None:
    targets = random_targets(100_000, 80)
    start = time.perf_counter()
    stratify(targets, 0.1, seed=0)
    assert time.perf_counter() - start < 5  # 0.2 s on an idle core


def test_split_off_parts_pictures_and_targets_alike() -> None:
    images = np.arange(20, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), dtype=np.uint8)
    whole = ImageSet(Arrays(images), Targets.from_classes(np.arange(20) % 2, num_classes=2), ("even", "odd"))
    larger, smaller = split_off(whole, 0.3, seed=0)
    assert (len(larger), len(smaller)) == (14, 6)
    for part in (larger, smaller):
        for i in range(len(part)):
            assert part.targets.row(i)[int(part.pictures.name(i)) % 2] == 1


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5])
def test_a_fraction_outside_is_an_error(fraction: float) -> None:
    images = ImageSet(Arrays(np.zeros((3, 2, 2, 3), np.uint8)), Targets.from_lists([[]] * 3, num_classes=1), ("a",))
    with pytest.raises(DataError, match="between 0 and 1"):
        split_off(images, fraction, seed=0)
