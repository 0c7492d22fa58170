"""The loss with one softmax over all classes, for images of exactly one class.

Shapes: b images, n classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mldecoder.errors import InputError
from mldecoder.losses.entries import Reduction, at_least_float32, check_shapes, check_smoothing, reduce

__all__ = ["softmax_cross_entropy"]


def softmax_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    label_smoothing: float = 0.0,
    sample_weights: Tensor | None = None,
    class_weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy over one softmax, one class an image: ``(b, n), (b, n) or (b,) -> ()``.

    Targets are rows, one-hot or soft (mixup), or class numbers (b,). An image without any positive entry (number
    -1, or a row of zeros and unknowns) takes no part. Rows are used as they are, not scaled to a sum of 1.
    """
    check_smoothing(label_smoothing)
    x = at_least_float32(logits)
    y = _one_hot(targets, x) if targets.ndim == 1 and x.ndim == 2 else targets.to(x.dtype)
    check_shapes(x, y, sample_weights, class_weights)
    y = y.clamp(min=0)
    takes_part = y.sum(dim=1) > 0  # (b,)
    y = y * (1 - label_smoothing) + label_smoothing / y.shape[1]
    if class_weights is not None:
        y = y * class_weights.to(y)
    x = x.masked_fill(~takes_part.unsqueeze(1), 0.0)  # so that not even a NaN passes
    loss = -(y * F.log_softmax(x, dim=1)).sum(dim=1) * takes_part  # (b,)
    if sample_weights is not None:
        loss = loss * sample_weights.to(loss)
    return reduce(loss, takes_part, reduction)


def _one_hot(numbers: Tensor, logits: Tensor) -> Tensor:
    """Turn class numbers (b,) into rows (b, n); a number below 0 becomes a row of zeros."""
    b, n = logits.shape
    if numbers.dtype.is_floating_point or numbers.dtype == torch.bool or len(numbers) != b:
        raise InputError(f"targets of one dimension must be {b} class numbers, got {len(numbers)} of {numbers.dtype}.")
    if numbers.device.type == "cpu" and (numbers >= n).any():  # a GPU would have to stop for this
        raise InputError(f"class numbers must be below the {n} classes of the logits, got {int(numbers.max())}.")
    known = (numbers >= 0).to(logits.dtype).unsqueeze(1)
    return torch.zeros_like(logits).scatter_(1, numbers.long().clamp(min=0).unsqueeze(1), known)
