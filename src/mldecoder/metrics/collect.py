"""Classes that collect batches: ``update``, ``compute``, ``reset``, and ``merge`` over processes.

Shapes: b images of a batch, n images so far, k classes.

With several processes there are two ways, and both give what one process gives. Either every process gathers
each batch before ``update`` (``accelerator.gather_for_metrics`` also drops the repeated images that fill up the
last batch), or every process collects its own images and one of them calls ``merge`` with the others.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mldecoder.errors import ConfigError, InputError
from mldecoder.metrics.average_precision import MeanAveragePrecision, check_scores, mean_average_precision
from mldecoder.metrics.counts import (
    at_k_from_counts,
    class_numbers,
    count_at_k,
    count_at_threshold,
    rank_of_target,
    threshold_from_counts,
)

__all__ = ["MultiLabelMetrics", "SingleLabelMetrics"]


class MultiLabelMetrics:
    """mAP, CP/CR/CF1, OP/OR/OF1 and, where asked for, P@K/R@K/F1@K of everything seen since ``reset``.

    Scores are kept as float32 and targets as int8: 5 bytes an entry. The counts for the rest are made on the way.

    Args:
        labels: Names of the k classes.
        threshold: Probability from which a class is said to be there: one number, or one for each class (k,).
        at: The Ks of P@K, R@K, F1@K, such as (3, 5).
        from_logits: Whether ``update`` gets logits (better: they do not round to 1) or probabilities.
        device: Where to keep everything. Use the GPU if it has room and the classes are many.
        chunk: How many classes to sort at once; see ``average_precision``.

    Example:
        >>> metrics = MultiLabelMetrics(["cat", "dog"])
        >>> metrics.update(torch.tensor([[2.0, -1.0], [-1.0, -2.0]]), torch.tensor([[1, 0], [0, 0]]))
        >>> metrics.compute()["mAP"], metrics.left_out
        (100.0, ('dog',))
    """

    def __init__(
        self,
        labels: Sequence[str],
        *,
        threshold: float | Tensor = 0.5,
        at: Sequence[int] = (),
        from_logits: bool = True,
        device: str | torch.device = "cpu",
        chunk: int | None = None,
    ) -> None:
        self.labels = _checked(labels)
        self.threshold = threshold
        self.at = tuple(at)
        if any(k < 1 for k in self.at):
            raise ConfigError(f"at must hold numbers from 1 on, got {self.at}. Common are 3 and 5.")
        self.from_logits = from_logits
        self.device = torch.device(device)
        self.chunk = chunk
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        k = len(self.labels)
        self._scores = [torch.empty(0, k, device=self.device)]
        self._targets = [torch.empty(0, k, dtype=torch.int8, device=self.device)]
        self._counts = torch.zeros(3, k, dtype=torch.long, device=self.device)
        self._counts_at = {at: torch.zeros(3, dtype=torch.long, device=self.device) for at in self.at}
        self._ranking: MeanAveragePrecision | None = None

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores (b, k) as ``from_logits`` says, targets (b, k) of 1, 0, -1."""
        check_scores(scores, targets)
        _check_classes(scores, self.labels)
        scores = scores.detach().to(self.device, torch.float32, copy=True)
        targets = targets.to(self.device).sign().to(torch.int8)
        probabilities = scores.sigmoid() if self.from_logits else scores
        counts = count_at_threshold(probabilities, targets, self.threshold)  # refuses NaN before anything is kept
        for at in self.at:
            self._counts_at[at] += count_at_k(scores, targets, at)
        self._counts += counts
        self._scores.append(scores)
        self._targets.append(targets)
        self._ranking = None

    def merge(self, other: "MultiLabelMetrics") -> None:
        """Add what another process has collected; options must be the same."""
        if (self.labels, self.at) != (other.labels, other.at):
            raise ConfigError("metrics can be merged only when labels and Ks are the same, got different ones.")
        self._scores.append(other.scores.to(self.device))
        self._targets.append(other.targets.to(self.device))
        self._counts += other._counts.to(self.device)
        for at in self.at:
            self._counts_at[at] += other._counts_at[at].to(self.device)
        self._ranking = None

    @property
    def scores(self) -> Tensor:
        """All scores so far, as they came (n, k)."""
        if len(self._scores) > 1:
            self._scores = [torch.cat(self._scores)]
        return self._scores[0]

    @property
    def targets(self) -> Tensor:
        """All targets so far (n, k), int8."""
        if len(self._targets) > 1:
            self._targets = [torch.cat(self._targets)]
        return self._targets[0]

    @property
    def ranking(self) -> MeanAveragePrecision:
        """Mean and per-class average precision as fractions; computed once for the images so far."""
        if self._ranking is None:
            _check_seen(len(self.scores))
            self._ranking = mean_average_precision(self.scores, self.targets, labels=self.labels, chunk=self.chunk)
        return self._ranking

    @property
    def left_out(self) -> tuple[str, ...]:
        """Labels without a positive image: they are in no mean over classes."""
        return self.ranking.left_out_names

    def per_class(self) -> dict[str, float]:
        """Return the average precision of each label that has a positive image, in percent."""
        values = (100 * self.ranking.per_class).tolist()
        return {label: v for label, v in zip(self.labels, values, strict=True) if not math.isnan(v)}

    def compute(self) -> dict[str, float]:
        """Return all metrics in percent: mAP, CP, CR, CF1, OP, OR, OF1, then P@K, R@K, F1@K."""
        result = {"mAP": self.ranking.value, **threshold_from_counts(self._counts)}
        for at, counts in self._counts_at.items():
            result |= {f"{name}@{at}": value for name, value in at_k_from_counts(counts).items()}
        return {name: 100 * value for name, value in result.items()}


class SingleLabelMetrics:
    """Top-K accuracy of everything seen since ``reset``. Only counts are kept.

    Args:
        labels: Names of the k classes.
        top: The Ks. A K that is not below the number of classes is always right and left away, except 1.
        device: Where to count.

    Example:
        >>> metrics = SingleLabelMetrics(["cat", "dog", "hen"], top=(1, 2))
        >>> metrics.update(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([0, 2]))
        >>> metrics.compute()
        {'top1': 50.0, 'top2': 100.0, 'class_top1': 50.0}
    """

    def __init__(
        self, labels: Sequence[str], *, top: Sequence[int] = (1, 5), device: str | torch.device = "cpu"
    ) -> None:
        self.labels = _checked(labels)
        if 1 not in top or min(top) < 1:
            raise ConfigError(f"top must hold 1 and numbers above it, got {tuple(top)}. The default is (1, 5).")
        self.top = tuple(k for k in top if k == 1 or k < len(self.labels))
        self.device = torch.device(device)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        k = len(self.labels)
        self._seen = torch.zeros(k, dtype=torch.long, device=self.device)
        self._right = {top: torch.zeros(k, dtype=torch.long, device=self.device) for top in self.top}

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores (b, k), targets as numbers (b,) or rows (b, k); images of unknown class are skipped."""
        numbers = class_numbers(scores, targets)
        _check_classes(scores, self.labels)
        rank = rank_of_target(scores.detach(), numbers.to(scores.device)).to(self.device)
        numbers = numbers.to(self.device)
        numbers, rank = numbers[rank >= 0], rank[rank >= 0]
        self._seen += numbers.bincount(minlength=len(self.labels))
        for top in self.top:
            self._right[top] += numbers[rank < top].bincount(minlength=len(self.labels))

    def merge(self, other: "SingleLabelMetrics") -> None:
        """Add what another process has collected; options must be the same."""
        if (self.labels, self.top) != (other.labels, other.top):
            raise ConfigError("metrics can be merged only when labels and Ks are the same, got different ones.")
        self._seen += other._seen.to(self.device)
        for top in self.top:
            self._right[top] += other._right[top].to(self.device)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Labels without an image: they are not in ``class_top1``."""
        return tuple(label for label, seen in zip(self.labels, self._seen.tolist(), strict=True) if not seen)

    def per_class(self) -> dict[str, float]:
        """Return the top-1 accuracy of each label that has an image, in percent."""
        counts = zip(self.labels, self._right[1].tolist(), self._seen.tolist(), strict=True)
        return {label: 100 * right / seen for label, right, seen in counts if seen}

    def compute(self) -> dict[str, float]:
        """Return all metrics in percent: top1, top5, ... and class_top1, the mean of the classes' top-1."""
        seen = int(self._seen.sum())
        _check_seen(seen)
        result = {f"top{k}": 100 * int(right.sum()) / seen for k, right in self._right.items()}
        each = self.per_class().values()
        return result | {"class_top1": sum(each) / len(each)}


def _checked(labels: Sequence[str]) -> tuple[str, ...]:
    twice = [label for i, label in enumerate(labels) if label in labels[:i]] if len(set(labels)) < len(labels) else []
    if isinstance(labels, str) or not labels or twice:
        raise ConfigError(f"labels must be a list of different names, got {twice[0] if twice else labels!r}.")
    return tuple(labels)


def _check_classes(scores: Tensor, labels: tuple[str, ...]) -> None:
    if scores.shape[1] != len(labels):
        raise InputError(f"scores must have one column for each of the {len(labels)} labels, got {scores.shape[1]}.")


def _check_seen(images: int) -> None:
    if not images:
        raise InputError("metrics need at least one annotated image, got none. Call update() first.")
