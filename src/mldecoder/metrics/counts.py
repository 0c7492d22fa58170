"""Metrics that count: precision and recall at a threshold and at K, top-K accuracy. All fractions.

Shapes: n images, k classes.

Each metric is a few counts, and counts of batches add up; ``collect.py`` uses that.
"""

import torch
from torch import Tensor

from mldecoder.errors import InputError
from mldecoder.metrics.average_precision import check_scores

__all__ = [
    "at_k_from_counts",
    "class_numbers",
    "count_at_k",
    "count_at_threshold",
    "precision_recall",
    "precision_recall_at_k",
    "rank_of_target",
    "threshold_from_counts",
    "top_k_accuracy",
]


def precision_recall(probabilities: Tensor, targets: Tensor, *, threshold: float | Tensor = 0.5) -> dict[str, float]:
    """Precision, recall and F1 when a class is said to be there from its threshold on.

    ``CP``, ``CR``: means over the classes that have a positive; a class that is never predicted has precision 0.
    ``OP``, ``OR``: over all annotated entries at once. ``CF1`` and ``OF1`` are the harmonic means of these two
    (CF1 is not the mean of the classes' F1), as in the multi-label literature since ML-GCN (arXiv:1904.03582).

    Args:
        probabilities: After the sigmoid (n, k).
        targets: 1, 0, or -1 for unknown (n, k).
        threshold: One number, or one for each class (k,).
    """
    return threshold_from_counts(count_at_threshold(probabilities, targets, threshold))


def precision_recall_at_k(scores: Tensor, targets: Tensor, *, k: int) -> dict[str, float]:
    """Precision, recall and F1 when each image is given its ``k`` best classes: keys ``P``, ``R``, ``F1``.

    Counted over all images at once, as in zero-shot work on NUS-WIDE: hits / (k images) and hits / positives.
    Unknown entries are never among the k; an image with fewer annotated classes gets fewer predictions. Of equal
    scores the lower class number is better.
    """
    return at_k_from_counts(count_at_k(scores, targets, k))


def top_k_accuracy(scores: Tensor, targets: Tensor, *, k: int = 1) -> float:
    """Share of images whose class is among the ``k`` best; of equal scores the lower class number is better.

    Args:
        scores: Logits or probabilities (n, classes).
        targets: Class numbers (n,), or rows (n, classes) whose largest entry is the class. Images with number -1,
            or without a positive entry, take no part.
        k: How many guesses an image has.
    """
    _check_k(k)
    rank = rank_of_target(scores, class_numbers(scores, targets))
    known = rank >= 0
    return float((known & (rank < k)).sum() / known.sum().double())


def count_at_threshold(probabilities: Tensor, targets: Tensor, threshold: float | Tensor) -> Tensor:
    """Count true positives, predictions and positives of each class: ``(3, k)``."""
    check_scores(probabilities, targets)
    _check_not_nan(probabilities)
    if isinstance(threshold, Tensor):
        if threshold.shape not in {(), (probabilities.shape[1],)}:
            raise InputError(
                f"threshold must be one number or one for each of the {probabilities.shape[1]} classes, "
                f"got the shape {tuple(threshold.shape)}."
            )
        threshold = threshold.to(probabilities)
    predicted = (probabilities >= threshold) & (targets >= 0)
    positive = targets > 0
    return torch.stack([(predicted & positive).sum(0), predicted.sum(0), positive.sum(0)])


def threshold_from_counts(counts: Tensor) -> dict[str, float]:
    """Turn the counts of ``count_at_threshold`` into CP, CR, CF1, OP, OR, OF1."""
    hits, predicted, positive = counts.double()
    there = positive > 0
    precision = _ratio(hits, predicted)[there].mean().item()
    recall = _ratio(hits, positive)[there].mean().item()
    overall_precision = _ratio(hits.sum(), predicted.sum()).item()
    overall_recall = (hits.sum() / positive.sum()).item()
    return {
        "CP": precision,
        "CR": recall,
        "CF1": _f1(precision, recall),
        "OP": overall_precision,
        "OR": overall_recall,
        "OF1": _f1(overall_precision, overall_recall),
    }


def count_at_k(scores: Tensor, targets: Tensor, k: int) -> Tensor:
    """Count hits, predictions and positives over all images: ``(3,)``."""
    check_scores(scores, targets)
    _check_not_nan(scores)
    _check_k(k)
    low = -torch.inf if scores.dtype.is_floating_point else torch.iinfo(scores.dtype).min
    # Not topk: which of equal scores it takes depends on the device.
    order = scores.masked_fill(targets < 0, low).sort(dim=1, descending=True, stable=True).indices
    chosen = targets.gather(1, order[:, :k])
    return torch.stack([(chosen > 0).sum(), (chosen >= 0).sum(), (targets > 0).sum()])


def at_k_from_counts(counts: Tensor) -> dict[str, float]:
    """Turn the counts of ``count_at_k`` into P, R, F1."""
    hits, predicted, positive = counts.double()
    precision, recall = _ratio(hits, predicted).item(), (hits / positive).item()
    return {"P": precision, "R": recall, "F1": _f1(precision, recall)}


def class_numbers(scores: Tensor, targets: Tensor) -> Tensor:
    """Turn single-label targets, numbers (n,) or rows (n, classes), into numbers (n,) with -1 for unknown."""
    n, classes = scores.shape if scores.ndim == 2 else (0, 0)
    if targets.ndim == 1 and scores.ndim == 2 and len(targets) == n:
        if (targets >= classes).any():
            raise InputError(f"class numbers must be below the {classes} classes, got {int(targets.max())}.")
        return targets.long().clamp(min=-1)
    check_scores(scores, targets)
    best = targets.max(dim=1)
    return torch.where(best.values > 0, best.indices, -1)


def rank_of_target(scores: Tensor, numbers: Tensor) -> Tensor:
    """Count the classes before the right one in each image, -1 for unknown: ``(n, k), (n,) -> (n,)``."""
    _check_not_nan(scores)
    own = scores.gather(1, numbers.clamp(min=0).unsqueeze(1))  # (n, 1)
    earlier = torch.arange(scores.shape[1], device=scores.device) < numbers.unsqueeze(1)
    rank = ((scores > own) | ((scores == own) & earlier)).sum(dim=1)
    return rank.masked_fill(numbers < 0, -1)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    return part / whole.clamp(min=1)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _check_not_nan(scores: Tensor) -> None:
    if scores.isnan().any():
        raise InputError("scores must be numbers, got NaN. Did training diverge?")


def _check_k(k: int) -> None:
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}.")
