"""Exact average precision of many classes at once.

Shapes: n images, k classes.

With P positives in a class, AP is the mean over them of (positives scored as high or higher) / (annotated images
scored as high or higher). That is scikit-learn's sum over thresholds, ties included, and asks only for the ranks of
the positives: on the CPU they are counted (``by_counting.py``), on a device looked up (``by_sorting.py``).
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from mldecoder.errors import InputError
from mldecoder.metrics.by_counting import count_columns
from mldecoder.metrics.by_sorting import sort_columns

__all__ = ["MeanAveragePrecision", "average_precision", "check_scores", "mean_average_precision"]


class MeanAveragePrecision(NamedTuple):
    """The mean over classes, and what it is made of. All fractions."""

    value: float  # NaN when no class has a positive
    per_class: Tensor  # (k,) float64, NaN where left out
    left_out: tuple[int, ...]  # classes without positives
    left_out_names: tuple[str, ...]  # their labels; their numbers where no labels were given


def average_precision(scores: Tensor, targets: Tensor, *, chunk: int | None = None) -> Tensor:
    """Average precision of each class: ``(n, k), (n, k) -> (k,)`` float64, NaN without positives.

    Equal to scikit-learn's ``average_precision_score`` on the annotated images of each class; images with tied
    scores come at once. Any increasing function of the scores gives the same result, so logits will do, and
    are better than probabilities, which round to 1.

    Args:
        scores: Logits or probabilities.
        targets: 1, 0, or -1 for unknown.
        chunk: How many classes to take at once; memory grows with it. Without it, about 4 million entries a thread
            on the CPU, 16 million on a device.

    Example:
        >>> average_precision(torch.tensor([[0.9], [0.8], [0.7]]), torch.tensor([[1], [0], [1]]))
        tensor([0.8333], dtype=torch.float64)
    """
    check_scores(scores, targets)
    if chunk is not None and chunk < 1:
        raise InputError(f"chunk must be at least 1 class, got {chunk}.")
    of_columns = count_columns if scores.device.type == "cpu" else sort_columns
    return of_columns(scores.detach(), targets.detach(), chunk)


def mean_average_precision(
    scores: Tensor, targets: Tensor, *, labels: Sequence[str] | None = None, chunk: int | None = None
) -> MeanAveragePrecision:
    """Mean of ``average_precision`` over the classes with positives; the others are named, not counted as 0.

    Args:
        scores: Logits or probabilities (n, k).
        targets: 1, 0, or -1 for unknown (n, k).
        labels: Names of the k classes.
        chunk: How many classes to take at once.

    Example:
        >>> scores, targets = torch.tensor([[0.9, 0.1], [0.8, 0.3]]), torch.tensor([[1, 0], [0, 0]])
        >>> result = mean_average_precision(scores, targets, labels=["cat", "dog"])
        >>> result.value, result.left_out_names
        (1.0, ('dog',))
    """
    if labels is not None and len(labels) != scores.shape[-1]:
        raise InputError(f"labels must name the {scores.shape[-1]} classes of the scores, got {len(labels)} names.")
    per_class = average_precision(scores, targets, chunk=chunk)
    left_out = tuple(int(j) for j in per_class.isnan().nonzero().flatten().tolist())
    names = tuple(str(j) if labels is None else labels[j] for j in left_out)
    return MeanAveragePrecision(float(per_class.nanmean()), per_class, left_out, names)


def check_scores(scores: Tensor, targets: Tensor) -> None:
    """Refuse shapes that do not belong together."""
    if scores.ndim != 2:
        raise InputError(f"scores must have the shape (images, classes), got {tuple(scores.shape)}.")
    if targets.shape != scores.shape:
        raise InputError(
            f"targets must have the shape of the scores {tuple(scores.shape)}, got {tuple(targets.shape)}."
        )
