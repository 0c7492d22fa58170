"""Two numbers that make scores honest: ``sigmoid(logit / temperature + bias)``.

Temperature scaling (Guo et al., arXiv:1706.04599) makes scores more or less sure of themselves, but leaves 0.5 where it
is. The asymmetric loss moves 0.5: it hardly punishes negatives that score low already, so that most of them stay well
above zero. A bias for all labels (Platt's scaling) puts that right. Neither changes the order of the scores.

Shapes: n pictures, k labels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mldecoder.config import Task
from mldecoder.errors import InputError
from mldecoder.metrics.counts import class_numbers

__all__ = ["LIMITS", "Scaling", "fit_scaling", "fit_temperature", "likelihood_loss"]

LIMITS = (0.05, 20.0)
"""Temperatures outside are not given: there the labels are split without an error, or the scores say nothing."""


@dataclass(frozen=True)
class Scaling:
    """How logits become scores."""

    temperature: float = 1.0
    bias: float = 0.0

    def probabilities(self, logits: Tensor, task: Task) -> Tensor:
        """Sigmoid, or softmax where exactly one label is right, in float64."""
        values = logits.double() / self.temperature + self.bias
        return values.softmax(dim=1) if task == "single-label" else values.sigmoid()


def fit_scaling(logits: Tensor, targets: Tensor, task: Task) -> Scaling:
    """Temperature and bias with the least cross-entropy on known entries; a softmax has no use for the bias.

    Args:
        logits: ``(n, k)``.
        targets: 1, 0 or -1 for unknown ``(n, k)``.
        task: Binary cross-entropy of every entry for ``"multi-label"``, of the classes for ``"single-label"``.
    """
    if task == "single-label":
        return Scaling(fit_temperature(logits, targets, task))
    values, truth = _known(logits, targets)
    scale, bias = _newton(values, truth)
    low, high = 1 / LIMITS[1], 1 / LIMITS[0]
    if not low <= scale <= high:
        scale = min(max(scale, low), high)
        bias = _zero(lambda b: float((torch.sigmoid(scale * values + b) - truth).mean()), -100.0, 100.0)
    return Scaling(1 / scale, bias)


def fit_temperature(logits: Tensor, targets: Tensor, task: Task) -> float:
    """The temperature alone; the loss is convex in 1 / temperature, so its slope has one zero."""
    if task == "single-label":
        numbers = class_numbers(logits, targets)
        values = logits[numbers >= 0].double()
        if not len(values):
            raise InputError("Calibration needs at least one known label, got none.")
        own = values.gather(1, numbers[numbers >= 0].unsqueeze(1)).squeeze(1)

        def slope(scale: float) -> float:
            return float((((values * scale).softmax(dim=1) * values).sum(dim=1) - own).mean())
    else:
        values, truth = _known(logits, targets)

        def slope(scale: float) -> float:
            return float(torch.dot(torch.sigmoid(values * scale) - truth, values) / len(values))

    return 1 / _zero(slope, 1 / LIMITS[1], 1 / LIMITS[0])


def likelihood_loss(logits: Tensor, targets: Tensor, task: Task, scaling: Scaling | None = None) -> float:
    """Mean cross-entropy of the known entries."""
    how = scaling or Scaling()
    if task == "single-label":
        numbers = class_numbers(logits, targets)
        known = numbers >= 0
        return float(F.cross_entropy(logits[known].double() / how.temperature, numbers[known]))
    values, truth = _known(logits, targets)
    return float(F.binary_cross_entropy_with_logits(values / how.temperature + how.bias, truth))


def _known(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    known = targets >= 0
    if not bool(known.any()):
        raise InputError("Calibration needs at least one known label, got none.")
    return logits[known].double(), (targets[known] > 0).double()


def _zero(slope: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is zero, by bisection; the end where it comes nearest if it is nowhere."""
    if slope(low) >= 0:
        return low
    if slope(high) <= 0:
        return high
    while high - low > 1e-12 * max(abs(low), abs(high)):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return (low + high) / 2


def _newton(values: Tensor, truth: Tensor) -> tuple[float, float]:
    """Scale and bias of the logistic regression of truth on values; stops where they leave every limit."""
    rows = torch.stack([values, torch.ones_like(values)])  # (2, entries)
    at = torch.tensor([1.0, 0.0], dtype=torch.float64)
    loss = F.binary_cross_entropy_with_logits(at @ rows, truth)
    for _ in range(100):
        p = torch.sigmoid(at @ rows)
        slope = rows @ (p - truth) / len(truth)
        curve = (rows * (p * (1 - p))) @ rows.T / len(truth) + 1e-12 * torch.eye(2, dtype=torch.float64)
        step = torch.linalg.inv(curve) @ slope
        size = 1.0
        while size > 1e-6:  # a convex function falls along the step if it is short enough
            tried = at - size * step
            new = F.binary_cross_entropy_with_logits(tried @ rows, truth)
            if new <= loss:
                break
            size /= 2
        else:
            break
        done = float(loss - new) < 1e-15 and size == 1.0
        at, loss = tried, new
        if done or abs(float(at[0])) > 100 * LIMITS[1]:
            break
    return float(at[0]), float(at[1])
