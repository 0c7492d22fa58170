"""What all losses share: precision, unknown entries, weights, reduction, and the checks.

Shapes: b images, n classes.
"""

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from mldecoder.errors import ConfigError, InputError, unknown_name

Reduction = Literal["sum", "mean", "image_mean", "none"]


def per_entry(
    cost: Callable[[Tensor, Tensor], Tensor],
    logits: Tensor,
    targets: Tensor,
    *,
    unknown_weight: float,
    sample_weights: Tensor | None,
    class_weights: Tensor | None,
    reduction: Reduction,
) -> Tensor:
    """Mask the unknown, ask ``cost`` for (b, n) costs, weight and reduce them."""
    check_shapes(logits, targets, sample_weights, class_weights)
    check_at_least_zero("unknown_weight", unknown_weight)
    unknown = targets < 0
    loss = costs_of(cost, at_least_float32(logits), targets, unknown, unknown_weight)
    if sample_weights is not None:
        loss = loss * sample_weights.to(loss).unsqueeze(1)
    if class_weights is not None:
        loss = loss * class_weights.to(loss)
    return reduce(loss, ~unknown if unknown_weight == 0 else torch.ones_like(unknown), reduction)


def costs_of(
    cost: Callable[[Tensor, Tensor], Tensor], x: Tensor, targets: Tensor, unknown: Tensor, unknown_weight: float
) -> Tensor:
    """Ask ``cost`` for the costs of logits of any shape: an unknown entry is nothing, or a negative with a weight."""
    y = targets.to(x.dtype).masked_fill(unknown, 0.0)
    if unknown_weight == 0:
        x = x.masked_fill(unknown, 0.0)  # so that not even a NaN passes
    return cost(x, y) * torch.where(unknown, unknown_weight, 1.0).to(x.dtype)


def reduce(loss: Tensor, takes_part: Tensor, reduction: str) -> Tensor:
    """Add up what ``reduction`` says; ``takes_part`` is what "mean" counts."""
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if reduction == "mean":
        return loss.sum() / takes_part.sum().clamp(min=1)
    if reduction == "image_mean":
        return loss.sum() / max(len(loss), 1)
    raise _unknown_reduction(reduction)


def check_reduction(reduction: str) -> None:
    """Refuse a name that is no reduction; a recipe may hold any text."""
    if reduction not in get_args(Reduction):
        raise _unknown_reduction(reduction)


def _unknown_reduction(reduction: str) -> ConfigError:
    return unknown_name("reduction must be one of", reduction, get_args(Reduction))


def at_least_float32(x: Tensor) -> Tensor:
    """Raise half precision to float32, which keeps small probabilities apart from zero."""
    return x if x.dtype == torch.float64 else x.float()


def check_shapes(logits: Tensor, targets: Tensor, sample_weights: Tensor | None, class_weights: Tensor | None) -> None:
    """Refuse tensors that torch would broadcast into a wrong loss."""
    if logits.ndim != 2:
        raise InputError(f"logits must have the shape (images, classes), got {tuple(logits.shape)}.")
    b, n = logits.shape
    if targets.shape != logits.shape:
        raise InputError(
            f"targets must have the shape of the logits {(b, n)}, got {tuple(targets.shape)}. "
            "Only softmax also takes class numbers, of the shape (images,)."
        )
    check_weights(b, n, sample_weights, class_weights)


def check_weights(b: int, n: int, sample_weights: Tensor | None, class_weights: Tensor | None) -> None:
    """Refuse weights that are not one an image and one a class."""
    if sample_weights is not None and sample_weights.shape != (b,):
        raise InputError(f"sample_weights must have the shape {(b,)}, got {tuple(sample_weights.shape)}.")
    if class_weights is not None and class_weights.shape != (n,):
        raise InputError(f"class_weights must have the shape {(n,)}, got {tuple(class_weights.shape)}.")


def check_at_least_zero(name: str, value: float) -> None:
    """Refuse negative numbers, NaN and infinity."""
    if not 0 <= value < math.inf:
        raise ConfigError(f"{name} must be at least 0 and finite, got {value}.")


def check_smoothing(value: float) -> None:
    """Refuse a label smoothing that leaves nothing of the label."""
    if not 0 <= value < 1:
        raise ConfigError(f"label_smoothing must be at least 0 and below 1, got {value}. Common is 0.1.")
