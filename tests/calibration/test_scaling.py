import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from mldecoder.calibration.reliability import reliability
from mldecoder.calibration.scaling import LIMITS, Scaling, fit_scaling, fit_temperature, likelihood_loss
from mldecoder.errors import InputError


def drawn(scaling: Scaling, n: int = 4000, k: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits whose truth follows the given scaling; a tenth is unknown."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator) + 1
    targets = (torch.rand(n, k, generator=generator) < scaling.probabilities(logits, "multi-label")).long()
    return logits, targets.masked_fill(torch.rand(n, k, generator=generator) < 0.1, -1)


@pytest.mark.parametrize("truth", [Scaling(0.5, -2.0), Scaling(3.0, 1.0), Scaling()])
def test_the_scaling_that_made_the_truth_is_found_again(truth: Scaling) -> None:
    found = fit_scaling(*drawn(truth), "multi-label")
    assert found.temperature == pytest.approx(truth.temperature, rel=0.1)
    assert found.bias == pytest.approx(truth.bias, abs=0.15)


def test_the_fit_is_a_logistic_regression() -> None:
    logits, targets = drawn(Scaling(2.0, -1.0), n=300)
    known = targets >= 0
    referee = LogisticRegression(C=math.inf, tol=1e-10, max_iter=1000)
    referee.fit(logits[known].double().unsqueeze(1).numpy(), targets[known].numpy())
    found = fit_scaling(logits, targets, "multi-label")
    assert 1 / found.temperature == pytest.approx(float(referee.coef_[0, 0]), rel=1e-5)
    assert found.bias == pytest.approx(float(referee.intercept_[0]), rel=1e-5)


@given(seed=st.integers(0, 1000), task=st.sampled_from(["multi-label", "single-label"]))
def test_no_other_temperature_has_less_loss(seed: int, task: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(12, 3, generator=generator)
    if task == "single-label":
        targets = torch.nn.functional.one_hot(torch.randint(0, 3, (12,), generator=generator), 3)
    else:
        targets = torch.randint(0, 2, (12, 3), generator=generator)
    found = fit_temperature(logits, targets, task)  # type: ignore[arg-type]
    assert LIMITS[0] <= found <= LIMITS[1]
    best = likelihood_loss(logits, targets, task, Scaling(found))  # type: ignore[arg-type]
    for other in (LIMITS[0], found * 0.97, found * 1.03, LIMITS[1]):
        if LIMITS[0] <= other <= LIMITS[1]:
            assert best <= likelihood_loss(logits, targets, task, Scaling(other)) + 1e-12  # type: ignore[arg-type]


def test_labels_split_without_an_error_stay_within_the_limits() -> None:
    logits = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
    found = fit_scaling(logits, torch.tensor([[0], [0], [1], [1]]), "multi-label")
    assert found.temperature == pytest.approx(LIMITS[0])
    assert abs(found.bias) < 1
    turned = fit_scaling(logits, torch.tensor([[1], [1], [0], [0]]), "multi-label")
    assert turned.temperature == pytest.approx(LIMITS[1])


@pytest.mark.parametrize("task", ["multi-label", "single-label"])
def test_nothing_known_is_refused(task: str) -> None:
    with pytest.raises(InputError, match="at least one known label"):
        fit_scaling(torch.randn(4, 3), torch.full((4, 3), -1), task)  # type: ignore[arg-type]


def test_the_calibration_error_is_that_of_torchmetrics() -> None:
    scores, targets = torch.rand(500, 4).double(), torch.randint(-1, 2, (500, 4))
    known = targets >= 0
    referee = binary_calibration_error(scores[known], targets[known], n_bins=15, norm="l1")
    assert reliability(scores, targets, "multi-label").error == pytest.approx(float(referee), abs=1e-6)
    classes = torch.randn(500, 4).double().softmax(1)
    truth = torch.randint(0, 4, (500,))
    referee = multiclass_calibration_error(classes, truth, num_classes=4, n_bins=15, norm="l1")
    assert reliability(classes, truth, "single-label").error == pytest.approx(float(referee), abs=1e-6)


def test_two_halves_add_up_to_the_whole() -> None:
    scores, targets = torch.rand(60, 3).double(), torch.randint(-1, 2, (60, 3))
    whole = reliability(scores, targets, "multi-label")
    parts = reliability(scores[:20], targets[:20], "multi-label") + reliability(
        scores[20:], targets[20:], "multi-label"
    )
    assert parts.error == pytest.approx(whole.error)
    assert torch.equal(parts.count, whole.count)
