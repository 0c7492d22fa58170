import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from mldecoder.errors import InputError
from mldecoder.reproduce.open_images import Protocol, protocols


def by_name(found: list[Protocol]) -> dict[str, Protocol]:
    return {one.name: one for one in found}


def slow(scores: torch.Tensor, targets: torch.Tensor, *, unknown: bool, least: int) -> tuple[float, int]:
    """Class by class with scikit-learn; ``unknown`` says whether unknown entries are negatives."""
    values = []
    for j in range(scores.shape[1]):
        column = targets[:, j].clamp(min=0) if unknown else targets[:, j]
        known = column >= 0
        if int((column == 1).sum()) >= least:
            values.append(average_precision_score(column[known].numpy(), scores[known, j].numpy()))
    return (100 * sum(values) / len(values) if values else math.nan), len(values)


@given(n=st.integers(1, 12), k=st.integers(1, 6), least=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_the_protocols_are_those_of_a_loop_over_classes(n: int, k: int, least: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, k, generator=generator)
    targets = torch.randint(-1, 2, (n, k), generator=generator)
    found = by_name(protocols(scores, targets, at_least=(least,)))
    for name, unknown, count in (
        ("unknown = negative", True, 1),
        ("unknown left out", False, 1),
        (f"unknown = negative, {least} positives", True, least),
        (f"unknown left out, {least} positives", False, least),
    ):
        value, classes = slow(scores, targets, unknown=unknown, least=count)
        assert found[name].classes == classes
        assert found[name].value == pytest.approx(value, abs=1e-6, nan_ok=True)


def test_verified_only_takes_classes_that_people_judged_both_ways() -> None:
    scores = torch.tensor([[0.9, 0.9], [0.1, 0.1]])
    targets = torch.tensor([[0, 1], [1, -1]])
    found = by_name(protocols(scores, targets))
    assert found["unknown left out"].value == pytest.approx(75.0)  # the second class has no negative: perfect
    assert found["verified only"].value == pytest.approx(50.0)
    assert found["verified only"].classes == 1


def test_labels_of_machines_are_not_verified() -> None:
    scores = torch.tensor([[0.9], [0.8], [0.1]])
    targets = torch.tensor([[1], [0], [1]])
    people = torch.tensor([[-1], [0], [1]])
    found = by_name(protocols(scores, targets, verified=people))
    assert found["verified only"].value == pytest.approx(50.0)
    assert found["unknown left out"].value == pytest.approx(100 * (1 + 2 / 3) / 2)


def test_pooled_is_one_ranking_over_all_classes() -> None:
    scores = torch.tensor([[0.9, 0.8], [0.7, 0.6]])
    targets = torch.tensor([[0, 1], [-1, 1]])
    expected = 100 * average_precision_score([0, 1, 1], [0.9, 0.8, 0.6])
    assert by_name(protocols(scores, targets))["unknown left out, pooled"].value == pytest.approx(expected)


def test_verified_targets_must_fit() -> None:
    with pytest.raises(InputError, match=r"shape of the targets \(2, 1\), got \(1, 1\)"):
        protocols(torch.zeros(2, 1), torch.zeros(2, 1), verified=torch.zeros(1, 1))
