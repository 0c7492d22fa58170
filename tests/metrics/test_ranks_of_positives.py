"""Both ways to the ranks of the positives, counting and sorting, against a loop over images that anybody can check."""

import time
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mldecoder.errors import InputError
from mldecoder.metrics import MultiLabelMetrics, average_precision
from mldecoder.metrics import by_counting as counting
from mldecoder.metrics.by_counting import count_columns
from mldecoder.metrics.by_sorting import sort_columns
from tests.metrics.cases import random_case

quick = settings(deadline=None, max_examples=60)
Way = Callable[[Tensor, Tensor, int | None], Tensor]
WAYS: list[Way] = [count_columns, sort_columns]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64]
INF = float("inf")
# Neighbours, both zeros, subnormals, the ends: whatever may share a bucket or fall out of one.
ODD = [0.0, -0.0, 1e-45, -1e-45, 0.1, 0.10000001, 1.0, 1.0000001, -5.0, 1e37, 1.1e37, 3.4e38, -3.4e38, INF, -INF]


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def slow_average_precision(scores: Tensor, targets: Tensor) -> Tensor:
    """The definition: for each positive, the share of positives among the images scored as high or higher."""
    result = []
    for column, marks in zip(scores.T.tolist(), targets.T.tolist(), strict=True):
        known = [(s, t > 0) for s, t in zip(column, marks, strict=True) if t >= 0]
        precisions = []
        for threshold in (s for s, positive in known if positive):
            above = [positive for s, positive in known if s >= threshold]
            precisions.append(sum(above) / len(above))
        result.append(sum(precisions) / len(precisions) if precisions else float("nan"))
    return torch.tensor(result, dtype=torch.float64)


def check(scores: Tensor, targets: Tensor) -> None:
    expected = slow_average_precision(scores, targets)
    for way in WAYS:
        for chunk in (None, 1, 2):
            torch.testing.assert_close(way(scores, targets, chunk), expected, rtol=0, atol=1e-12, equal_nan=True)


@quick
@given(
    n=st.integers(0, 60),
    k=st.integers(0, 5),
    seed=st.integers(0, 9999),
    levels=st.sampled_from([1, 3, 100_000]),  # few levels make ties
    rate=st.sampled_from([0.0, 0.03, 0.5, 1.0]),
    unknown=st.sampled_from([0.0, 0.3, 1.0]),
    dtype=st.sampled_from(DTYPES),
)
def test_counting_and_sorting_equal_the_definition(
    n: int, k: int, seed: int, levels: int, rate: float, unknown: float, dtype: torch.dtype
) -> None:
    scores, targets = random_case(n, k, seed, levels=levels, rate=rate, unknown=unknown, dtype=dtype)
    check(scores, targets.to(torch.int8))


@quick
@given(
    entries=st.lists(
        st.tuples(
            st.one_of(st.sampled_from(ODD), st.floats(allow_nan=False, width=32)), st.sampled_from([-1, 0, 0, 1])
        ),
        min_size=1,
        max_size=40,
    ),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_any_numbers_are_ranked_exactly(entries: list[tuple[float, int]], dtype: torch.dtype) -> None:
    scores = torch.tensor([s for s, _ in entries], dtype=dtype).unsqueeze(1)
    check(scores, torch.tensor([t for _, t in entries]).unsqueeze(1))


@quick
@given(
    scores=st.lists(st.one_of(st.sampled_from(ODD), st.floats(allow_nan=False, width=32)), min_size=1, max_size=60),
    positives=st.lists(st.one_of(st.sampled_from(ODD), st.floats(allow_nan=False, width=32)), min_size=1, max_size=9),
    buckets=st.sampled_from([1, 4, 128]),
)
def test_scores_at_or_above_are_counted_exactly_with_any_buckets(
    scores: list[float], positives: list[float], buckets: int
) -> None:
    x = np.array([*scores, *positives], dtype=np.float32)
    thresholds = np.sort(np.array(positives, dtype=np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "BUCKETS", buckets)
        counts = counting._at_or_above(x, thresholds)
    assert counts.tolist() == [sum(bool(s >= threshold) for s in x) for threshold in thresholds]


@quick
@given(
    scores=st.lists(st.floats(allow_nan=False, width=32), min_size=2, max_size=40),
    low=st.floats(-1e37, 1e37),
    width=st.floats(1e-30, 1e33),
)
def test_buckets_never_turn_the_order_round(scores: list[float], low: float, width: float) -> None:
    places = counting._bucket(np.sort(np.array(scores, dtype=np.float32)), low, width, counting.MOST_BUCKETS)
    assert (np.diff(places.astype(np.int64)) >= 0).all()


def test_both_ways_agree_on_many_images_of_every_kind() -> None:
    g = torch.Generator().manual_seed(0)
    n = 20_000
    targets = (torch.rand(n, 6, generator=g) < torch.tensor([0.0001, 0.001, 0.01, 0.1, 0.5, 0.9])).to(torch.int8)
    targets[torch.rand(n, 6, generator=g) < 0.1] = -1
    logits = torch.randn(n, 6, generator=g).mul(2).sub(5).add(targets, alpha=4)
    far = logits.clone()
    far[0] = torch.tensor([1e30, -1e30, INF, -INF, 3e38, 0.0])
    for scores in (
        logits,
        logits.sigmoid(),
        logits.bfloat16(),
        logits.double(),
        logits.round(),
        far,
        torch.zeros(n, 6),
    ):
        by_counting, by_sorting = count_columns(scores, targets, None), sort_columns(scores, targets, None)
        torch.testing.assert_close(by_counting, by_sorting, rtol=0, atol=1e-14)


def test_few_images_are_sorted_where_few_are_positive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The point of it all: without this it would be a slow way to sort everything."""
    generator = np.random.default_rng(0)
    scores = generator.normal(size=100_000).astype(np.float32)
    positives = np.sort(scores[:100])
    lengths, sort = [], np.sort

    def spy(x: counting.Floats) -> counting.Floats:
        lengths.append(len(x))
        return sort(x)

    monkeypatch.setattr(np, "sort", spy)
    counting._at_or_above(scores, positives)
    assert len(lengths) == 1
    assert 100 <= lengths[0] < 3000


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.bfloat16])
def test_targets_may_have_any_type(way: Way, dtype: torch.dtype) -> None:
    scores, targets = torch.randn(30, 3), torch.randint(0, 2, (30, 3))
    assert way(scores, targets.to(dtype), None).equal(way(scores, targets, None))


def test_a_large_uint8_target_is_positive_and_a_fraction_counts_as_its_sign() -> None:
    scores = torch.tensor([[3.0], [2.0], [1.0]])
    assert average_precision(scores, torch.tensor([[255], [0], [255]], dtype=torch.uint8)).item() == pytest.approx(
        5 / 6
    )
    assert average_precision(scores, torch.tensor([[-0.5], [0.5], [0.0]])).item() == 1.0


@pytest.mark.parametrize("way", WAYS)
def test_columns_may_lie_anyhow_in_memory(way: Way) -> None:
    scores, targets = torch.randn(7, 300), torch.randint(-1, 2, (7, 300))
    expected = slow_average_precision(scores.T, targets.T)
    torch.testing.assert_close(way(scores.T, targets.T, 2), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(way(scores.T[:, ::2], targets.T[:, ::2], None), expected[::2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_the_first_class_with_nan_is_named(way: Way) -> None:
    scores, targets = torch.randn(9, 6), torch.randint(-1, 2, (9, 6))
    scores[3, 4], scores[8, 2] = float("nan"), float("nan")
    for chunk in (None, 1, 4):
        with pytest.raises(InputError, match="got NaN in class 2"):
            way(scores, targets, chunk)


@pytest.mark.usefixtures("threads")
def test_threads_do_not_change_the_result() -> None:
    scores, targets = torch.randn(500, 17), torch.randint(-1, 2, (500, 17))
    results = []
    for number in (1, 2, 5):
        torch.set_num_threads(number)
        results.append(average_precision(scores, targets))
    assert results[0].equal(results[1])
    assert results[0].equal(results[2])


@pytest.mark.usefixtures("threads")
def test_memory_depends_on_the_chunk_and_not_on_the_classes() -> None:
    torch.set_num_threads(2)
    n, chunk = 5000, 4
    peaks = []
    for classes in (40, 400):
        scores, targets = torch.randn(n, classes), (torch.rand(n, classes) < 0.01).to(torch.int8)
        average_precision(scores[:, :4], targets[:, :4])
        tracemalloc.start()
        average_precision(scores, targets, chunk=chunk)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Two threads, each a chunk of 5 bytes an entry and about 30 bytes an image for one class of it, and some buckets.
    assert peaks[1] < 2 * (5 * n * chunk + 30 * n + 300_000)
    assert peaks[1] < 1.5 * peaks[0] + 400 * 1000  # a task of the pool a chunk is what grows


def test_collected_batches_give_what_the_whole_gives() -> None:
    scores, targets = torch.randn(90, 5), torch.randint(-1, 2, (90, 5))
    metrics = MultiLabelMetrics(list("abcde"))
    for part in range(0, 90, 40):
        metrics.update(scores[part : part + 40], targets[part : part + 40])
    assert metrics.targets.dtype == torch.int8  # what counting takes without a copy
    assert metrics.ranking.per_class.equal(average_precision(scores, targets))


@pytest.mark.slow
@pytest.mark.usefixtures("threads")
def test_a_class_of_many_images_takes_a_tenth_of_what_torchmetrics_takes() -> None:
    from torchmetrics.functional.classification import multilabel_average_precision

    torch.set_num_threads(2)
    targets = (torch.rand(100_000, 80) < 0.001).to(torch.int8)
    scores = torch.randn(100_000, 80)
    probabilities, wide = scores[:, :10].sigmoid(), targets[:, :10].long()
    ours, theirs = [], []
    for _ in range(5):  # the fastest of each, in turns: other work on the machine must not decide
        start = time.perf_counter()
        average_precision(scores, targets)
        ours.append((time.perf_counter() - start) / 80)
        start = time.perf_counter()
        multilabel_average_precision(probabilities, wide, 10, average=None, validate_args=False)
        theirs.append((time.perf_counter() - start) / 10)
    assert min(ours) * 10 < min(theirs), f"{1000 * min(ours):.2f} ms a class, torchmetrics {1000 * min(theirs):.2f} ms"
