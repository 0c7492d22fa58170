"""Metrics against scikit-learn where it knows them, and against slow loops where it does not."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    precision_recall_fscore_support,
    top_k_accuracy_score,
)
from torch import Tensor

from mldecoder.errors import ConfigError, InputError
from mldecoder.metrics import (
    MultiLabelMetrics,
    SingleLabelMetrics,
    average_precision,
    mean_average_precision,
    precision_recall,
    precision_recall_at_k,
    top_k_accuracy,
)
from tests.metrics.cases import random_case

quick = settings(deadline=None, max_examples=60)


def slow_average_precision(scores: Tensor, targets: Tensor) -> list[float]:
    result = []
    for j in range(scores.shape[1]):
        known = targets[:, j] >= 0
        positive = (targets[known, j] > 0).numpy()
        if positive.any():
            result.append(float(average_precision_score(positive, scores[known, j].double().numpy())))
        else:
            result.append(float("nan"))
    return result


def check_against_sklearn(scores: Tensor, targets: Tensor) -> None:
    expected = torch.tensor(slow_average_precision(scores, targets), dtype=torch.float64)
    for chunk in (None, 1, 2):
        fast = average_precision(scores, targets, chunk=chunk)
        torch.testing.assert_close(fast, expected, rtol=0, atol=1e-12, equal_nan=True)


@quick
@given(
    n=st.integers(1, 40),
    k=st.integers(1, 7),
    seed=st.integers(0, 9999),
    levels=st.sampled_from([1, 2, 5, 1000]),  # few levels make ties
    rate=st.sampled_from([0.02, 0.5, 1.0]),
    unknown=st.sampled_from([0.0, 0.3, 1.0]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64]),
)
def test_average_precision_equals_sklearn(
    n: int, k: int, seed: int, levels: int, rate: float, unknown: float, dtype: torch.dtype
) -> None:
    scores, targets = random_case(n, k, seed, levels=levels, rate=rate, unknown=unknown, dtype=dtype)
    check_against_sklearn(scores, targets)


@pytest.mark.parametrize(
    ("scores", "targets"),
    [
        ([1, 1, 1, 1], [1, 0, 0, 1]),
        ([0, 0, 0, 0], [1, 1, 1, 1]),
        ([3], [1]),
        ([3], [0]),
        ([3], [-1]),
        ([4, 3, 2, 1], [0, 0, 0, 1]),
        ([4, 3, 3, 1], [-1, 1, -1, 0]),
        ([4, 4, 4, 1], [-1, 1, 0, -1]),
        ([0.0, -0.0, 0.0], [1, 0, 1]),
        ([1e-45, 0.0, -1e-45], [0, 1, 0]),
        ([3e38, -3e38, 3.0000001e38], [1, 1, 0]),
        ([0.1, 0.10000001, 0.1], [1, 0, 0]),
    ],
)
def test_average_precision_equals_sklearn_on_adversarial_input(scores: list[float], targets: list[int]) -> None:
    check_against_sklearn(torch.tensor(scores).float().unsqueeze(1), torch.tensor(targets).unsqueeze(1))
    check_against_sklearn(torch.tensor(scores).float().repeat(3, 1).T, torch.tensor(targets).repeat(3, 1).T)


def test_average_precision_equals_sklearn_on_many_images() -> None:
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(5000, 12, generator=g)
    scores[:, :6] = scores[:, :6].mul(8).round()
    targets = (torch.rand(5000, 12, generator=g) < torch.linspace(0.001, 0.9, 12)).to(torch.int8)
    check_against_sklearn(scores, targets)


def test_infinite_scores_are_ordinary_ends_of_the_scale() -> None:
    inf = float("inf")
    scores = torch.tensor([[inf], [inf], [1.0], [-inf], [-inf], [inf]])
    targets = torch.tensor([[1], [0], [1], [1], [0], [-1]])
    expected = average_precision(scores.clamp(-9, 9), targets)
    torch.testing.assert_close(average_precision(scores, targets), expected)


def test_average_precision_depends_only_on_the_order() -> None:
    logits = torch.randn(200, 4, dtype=torch.float64)
    targets = torch.randint(0, 2, (200, 4))
    assert average_precision(logits, targets).equal(average_precision(logits.sigmoid(), targets))


@pytest.mark.parametrize("shape", [(50, 1), (50, 3), (1, 3)])
def test_average_precision_leaves_its_input_alone(shape: tuple[int, int]) -> None:
    scores, targets = torch.randn(shape, requires_grad=True), torch.randint(-1, 2, shape)
    before = scores.detach().clone(), targets.clone()
    result = average_precision(scores, targets)
    assert not result.requires_grad
    assert scores.equal(before[0])
    assert targets.equal(before[1])


def test_average_precision_of_no_images_is_nan() -> None:
    assert average_precision(torch.empty(0, 3), torch.empty(0, 3)).isnan().all()
    assert average_precision(torch.empty(4, 0), torch.empty(4, 0)).shape == (0,)


@pytest.mark.parametrize("chunk", [None, 1])
def test_nan_scores_are_refused_with_their_class(chunk: int | None) -> None:
    scores, targets = torch.randn(4, 3), torch.ones(4, 3)
    scores[2, 1] = float("nan")
    with pytest.raises(InputError, match="got NaN in class 1"):
        average_precision(scores, targets, chunk=chunk)
    refusing: list[Callable[[], object]] = [
        lambda: precision_recall(scores, targets),
        lambda: precision_recall_at_k(scores, targets, k=2),
        lambda: top_k_accuracy(scores, torch.tensor([0, 1, 2, 0])),
        lambda: MultiLabelMetrics(["a", "b", "c"]).update(scores, targets),
        lambda: SingleLabelMetrics(["a", "b", "c"]).update(scores, torch.tensor([0, 1, 2, 0])),
    ]
    for call in refusing:
        with pytest.raises(InputError, match="got NaN"):
            call()


def test_the_mean_leaves_out_classes_without_positives_and_names_them() -> None:
    scores = torch.randn(6, 4)
    targets = torch.tensor([[1, 0, -1, 0]]).repeat(6, 1)
    targets[3:, [0, 3]] = torch.tensor([0, 1])
    result = mean_average_precision(scores, targets, labels=["ant", "bee", "cat", "dog"])
    assert result.left_out == (1, 2)
    assert result.left_out_names == ("bee", "cat")
    assert result.value == pytest.approx(np.nanmean(slow_average_precision(scores, targets)))
    assert mean_average_precision(scores, targets).left_out_names == ("1", "2")
    assert np.isnan(mean_average_precision(scores, torch.zeros(6, 4)).value)


def slow_precision_recall(p: Tensor, targets: Tensor, threshold: Tensor) -> dict[str, float]:
    precisions, recalls, hits, said, there = [], [], 0, 0, 0
    for j in range(p.shape[1]):
        known = targets[:, j] >= 0
        guess, truth = p[known, j] >= threshold[j], targets[known, j] > 0
        one = int((guess & truth).sum()), int(guess.sum()), int(truth.sum())
        hits, said, there = hits + one[0], said + one[1], there + one[2]
        if one[2]:
            precisions.append(one[0] / one[1] if one[1] else 0.0)
            recalls.append(one[0] / one[2])
    cp, cr, op, or_ = float(np.mean(precisions)), float(np.mean(recalls)), hits / max(said, 1), hits / there
    cf1 = 2 * cp * cr / (cp + cr) if cp + cr else 0.0
    of1 = 2 * op * or_ / (op + or_) if op + or_ else 0.0
    return {"CP": cp, "CR": cr, "CF1": cf1, "OP": op, "OR": or_, "OF1": of1}


@quick
@given(n=st.integers(1, 20), k=st.integers(1, 6), seed=st.integers(0, 9999))
def test_precision_and_recall_equal_the_loop(n: int, k: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    p, threshold = torch.rand(n, k, generator=g), torch.rand(k, generator=g)
    targets = torch.randint(-1, 2, (n, k), generator=g)
    targets[0, 0] = 1
    assert precision_recall(p, targets, threshold=threshold) == pytest.approx(
        slow_precision_recall(p, targets, threshold)
    )
    assert precision_recall(p, targets, threshold=0.3) == pytest.approx(
        slow_precision_recall(p, targets, torch.full((k,), 0.3))
    )


def test_precision_and_recall_equal_sklearn_when_all_is_annotated() -> None:
    g = torch.Generator().manual_seed(4)
    p, targets = torch.rand(60, 5, generator=g), torch.randint(0, 2, (60, 5), generator=g)
    ours = precision_recall(p, targets)
    for average, prefix in (("macro", "C"), ("micro", "O")):
        precision, recall, _, _ = precision_recall_fscore_support(targets, p >= 0.5, average=average)
        assert ours[f"{prefix}P"] == pytest.approx(precision)
        assert ours[f"{prefix}R"] == pytest.approx(recall)


@quick
@given(n=st.integers(1, 12), k=st.integers(1, 6), at=st.integers(1, 8), seed=st.integers(0, 9999))
def test_precision_and_recall_at_k_equal_the_loop(n: int, k: int, at: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    scores, targets = torch.randn(n, k, generator=g), torch.randint(-1, 2, (n, k), generator=g)
    targets[0, 0] = 1
    hits = said = 0
    for i in range(n):
        order = [j for j in scores[i].argsort(descending=True).tolist() if targets[i, j] >= 0][:at]
        hits += sum(int(targets[i, j] > 0) for j in order)
        said += len(order)
    p, r = hits / max(said, 1), hits / int((targets > 0).sum())
    f1 = 2 * p * r / (p + r) if p + r else 0.0
    assert precision_recall_at_k(scores, targets, k=at) == pytest.approx({"P": p, "R": r, "F1": f1})


def test_precision_at_k_divides_by_k_times_images() -> None:
    scores = torch.tensor([[4.0, 3, 2, 1], [4, 3, 2, 1]])
    targets = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0]])
    assert precision_recall_at_k(scores, targets, k=3) == pytest.approx({"P": 2 / 6, "R": 2 / 3, "F1": 4 / 9})


@quick
@given(n=st.integers(3, 30), classes=st.integers(3, 8), seed=st.integers(0, 9999))
def test_top_k_equals_sklearn(n: int, classes: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    scores, numbers = torch.randn(n, classes, generator=g), torch.randint(0, classes, (n,), generator=g)
    rows = torch.nn.functional.one_hot(numbers, classes)
    for k in range(1, classes):
        expected = top_k_accuracy_score(numbers, scores, k=k, labels=range(classes))
        assert top_k_accuracy(scores, numbers, k=k) == pytest.approx(expected)
        assert top_k_accuracy(scores, rows, k=k) == pytest.approx(expected)


def test_top_k_breaks_ties_by_class_number_so_that_equal_scores_win_nothing() -> None:
    scores = torch.zeros(4, 4)
    numbers = torch.arange(4)
    assert [top_k_accuracy(scores, numbers, k=k) for k in (1, 2, 4, 9)] == [0.25, 0.5, 1.0, 1.0]


def test_precision_at_k_breaks_ties_by_class_number() -> None:
    targets = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1], [-1, 1, 1, 1]])
    hits = precision_recall_at_k(torch.zeros(3, 4), targets, k=2)
    assert hits == pytest.approx({"P": 4 / 6, "R": 4 / 7, "F1": 8 / 13})


def test_top_k_skips_images_of_unknown_class() -> None:
    scores = torch.eye(3)
    assert top_k_accuracy(scores, torch.tensor([0, -1, 1])) == 0.5
    assert top_k_accuracy(scores, torch.tensor([[1, 0, 0], [-1, -1, -1], [-1, 1, -1]])) == 0.5
    assert np.isnan(top_k_accuracy(scores, torch.tensor([-1, -1, -1])))


def collected(sizes: list[int], *, from_logits: bool = True) -> tuple[MultiLabelMetrics, Tensor, Tensor]:
    g = torch.Generator().manual_seed(sum(sizes))
    scores, targets = (
        torch.randn(sum(sizes), 4, generator=g),
        torch.randint(-1, 2, (sum(sizes), 4), generator=g),
    )
    targets[:, 2] = targets[:, 2].clamp(max=0)
    metrics = MultiLabelMetrics(["ant", "bee", "cat", "dog"], at=(1, 3), from_logits=from_logits)
    given_scores = scores if from_logits else scores.sigmoid()
    for s, t in zip(torch.split(given_scores, sizes), torch.split(targets, sizes), strict=True):
        metrics.update(s, t)
    return metrics, scores, targets


@pytest.mark.parametrize("from_logits", [True, False])
def test_collected_batches_give_the_functions_on_everything_in_percent(from_logits: bool) -> None:
    metrics, scores, targets = collected([5, 1, 0, 7], from_logits=from_logits)
    expected = {"mAP": mean_average_precision(scores, targets).value} | precision_recall(scores.sigmoid(), targets)
    for k in (1, 3):
        expected |= {f"{m}@{k}": v for m, v in precision_recall_at_k(scores, targets, k=k).items()}
    assert metrics.compute() == pytest.approx({name: 100 * value for name, value in expected.items()})
    assert list(metrics.compute()) == list(expected)
    assert metrics.left_out == ("cat",)
    per_class = average_precision(scores, targets)
    assert metrics.per_class() == pytest.approx(
        {n: 100 * float(per_class[j]) for j, n in ((0, "ant"), (1, "bee"), (3, "dog"))}
    )
    assert metrics.scores.dtype == torch.float32
    assert metrics.targets.dtype == torch.int8


def test_more_batches_after_compute_and_reset_count() -> None:
    metrics, scores, targets = collected([8])
    first = metrics.compute()
    metrics.update(scores.flip(1), targets)
    assert metrics.compute() != first
    metrics.reset()
    metrics.update(scores[:3], targets[:3])
    metrics.update(scores[3:], targets[3:])
    assert metrics.compute() == pytest.approx(first)


def test_what_processes_collect_apart_merges_into_what_one_collects() -> None:
    whole, scores, targets = collected([9])
    parts = []
    for rank in range(2):  # an odd number of images: 5 and 4
        part = MultiLabelMetrics(whole.labels, at=(1, 3))
        part.update(scores[rank::2], targets[rank::2])
        parts.append(pickle.loads(pickle.dumps(part)))
    parts[0].merge(parts[1])
    assert parts[0].compute() == pytest.approx(whole.compute())
    with pytest.raises(ConfigError, match="labels and Ks are the same"):
        parts[0].merge(MultiLabelMetrics(["x"]))


def test_a_batch_changed_after_update_does_not_change_the_result() -> None:
    metrics, scores, targets = collected([6])
    before = metrics.compute()
    scores.zero_()
    targets.zero_()
    metrics._ranking = None
    assert metrics.compute() == before


def test_single_label_batches_give_the_functions_on_everything_in_percent() -> None:
    g = torch.Generator().manual_seed(1)
    scores, numbers = torch.randn(40, 7, generator=g), torch.randint(-1, 6, (40,), generator=g)
    metrics, other = (
        SingleLabelMetrics([f"c{j}" for j in range(7)]),
        SingleLabelMetrics([f"c{j}" for j in range(7)]),
    )
    metrics.update(scores[:11], numbers[:11])
    metrics.update(
        scores[11:20],
        torch.nn.functional.one_hot(numbers[11:20].clamp(min=0), 7) - (numbers[11:20, None] < 0).long(),
    )
    other.update(scores[20:].half().float(), numbers[20:])
    metrics.merge(other)
    right = scores.argmax(1) == numbers
    each = [right[numbers == j].float().mean().item() for j in range(6)]
    result = metrics.compute()
    assert result["top1"] == pytest.approx(100 * top_k_accuracy(scores, numbers))
    assert result["top5"] == pytest.approx(100 * top_k_accuracy(scores, numbers, k=5))
    assert result["class_top1"] == pytest.approx(100 * sum(each) / 6)
    assert metrics.left_out == ("c6",)
    assert "c6" not in metrics.per_class()
    metrics.reset()
    with pytest.raises(InputError, match="at least one annotated image"):
        metrics.compute()


def test_top5_of_five_classes_is_left_away() -> None:
    assert SingleLabelMetrics(list("abcde")).top == (1,)
    assert SingleLabelMetrics(list("abcdef")).top == (1, 5)


def test_wrong_use_is_refused_in_one_line() -> None:
    x = torch.zeros(2, 3)
    wrong: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: average_precision(x, x[:, :2]), InputError, r"shape of the scores \(2, 3\), got \(2, 2\)"),
        (lambda: average_precision(x[0], x[0]), InputError, r"\(images, classes\), got \(3,\)"),
        (lambda: average_precision(x, x, chunk=0), InputError, "chunk must be at least 1"),
        (lambda: mean_average_precision(x, x, labels=["a"]), InputError, "3 classes of the scores, got 1"),
        (lambda: precision_recall(x, x, threshold=torch.ones(2)), InputError, "each of the 3 classes"),
        (lambda: precision_recall_at_k(x, x, k=0), InputError, "k must be at least 1, got 0"),
        (lambda: top_k_accuracy(x, torch.tensor([0, 3])), InputError, "below the 3 classes, got 3"),
        (lambda: top_k_accuracy(x, torch.tensor([0])), InputError, "shape of the scores"),
        (lambda: MultiLabelMetrics(["a", "b", "a"]), ConfigError, "different names, got 'a'"),
        (lambda: MultiLabelMetrics([]), ConfigError, "list of different names"),
        (lambda: MultiLabelMetrics("abc"), ConfigError, "list of different names, got 'abc'"),
        (lambda: MultiLabelMetrics(["a"], at=(0,)), ConfigError, "at must hold numbers from 1 on"),
        (lambda: MultiLabelMetrics(["a"]).update(x, x), InputError, "each of the 1 labels, got 3"),
        (lambda: MultiLabelMetrics(["a"]).compute(), InputError, "Call update"),
        (lambda: SingleLabelMetrics(["a"], top=(5,)), ConfigError, "top must hold 1"),
        (lambda: SingleLabelMetrics(["a"]).update(x, x), InputError, "each of the 1 labels, got 3"),
    ]
    for call, error, message in wrong:
        with pytest.raises(error, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_many_classes_and_images_need_little_time() -> None:
    """A hundredth of 10,000 classes x 100,000 images, five times as fast as torchmetrics on any number of cores."""
    import time

    from torchmetrics.functional.classification import multilabel_average_precision

    scores = torch.randn(100_000, 100)
    targets = (torch.rand(100_000, 100) < 0.01).long()
    average_precision(scores[:, :2], targets[:, :2])
    start = time.perf_counter()
    fast = average_precision(scores, targets.to(torch.int8))
    ours = (time.perf_counter() - start) / 100
    start = time.perf_counter()
    referee = multilabel_average_precision(scores[:, :10].sigmoid(), targets[:, :10], 10, average=None)
    theirs = (time.perf_counter() - start) / 10
    torch.testing.assert_close(fast[:10], referee.double(), rtol=0, atol=1e-5)
    assert ours * 5 < theirs, f"{1000 * ours:.1f} ms a class, torchmetrics {1000 * theirs:.1f} ms"
