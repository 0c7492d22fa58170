"""Figures of each label: how well it is found, and on how many pictures that is measured.

Shapes: n pictures, k labels.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mldecoder.metrics import average_precision
from mldecoder.metrics.counts import class_numbers, count_at_threshold
from mldecoder.training.report.data import ReportData

__all__ = ["THRESHOLD", "ClassFigures", "class_figures"]

THRESHOLD = 0.5
"""Probability from which a label is said to be there."""

_CHUNK = 512
"""Labels counted in one go."""


@dataclass(frozen=True, eq=False)
class ClassFigures:
    """Fractions of each label, ``(k,)`` float64, NaN where nothing can be measured."""

    name: str  # of the main figure
    main: Tensor
    average_precision: Tensor
    positives: Tensor  # (k,) int64
    unknown: Tensor  # (k,) int64
    others: dict[str, Tensor]

    @property
    def order(self) -> list[int]:
        """Labels that have a figure, best first; of equals the one with more pictures, whose figure says more."""
        return self._best_first(self.main)

    @property
    def ranking(self) -> list[int]:
        """The same by average precision."""
        return self._best_first(self.average_precision)

    @property
    def without(self) -> list[int]:
        """Labels without a positive picture."""
        return [int(j) for j in (self.positives == 0).nonzero().flatten().tolist()]

    def _best_first(self, figure: Tensor) -> list[int]:
        values, pictures = figure.tolist(), self.positives.tolist()
        known = [j for j, value in enumerate(values) if not math.isnan(value)]
        return sorted(known, key=lambda j: (-values[j], -pictures[j]))


def class_figures(data: ReportData) -> ClassFigures:
    """Average precision (multi-label) or accuracy (single-label) of each label, and what goes with it."""
    ranking = average_precision(data.scores, data.targets)
    positives, unknown = (data.targets > 0).sum(0), (data.targets < 0).sum(0)
    if data.task == "single-label":
        hits, predicted, positives = _count_guesses(data)
        accuracy, precision = hits / positives.double(), hits / predicted.double()
        others = {"Precision": precision, "Average precision": ranking}
        return ClassFigures("Accuracy", accuracy, ranking, positives, unknown, others)
    hits, predicted = torch.cat(
        [
            count_at_threshold(
                data.scores[:, start : start + _CHUNK], data.targets[:, start : start + _CHUNK], THRESHOLD
            )
            for start in range(0, len(data.labels), _CHUNK)
        ],
        dim=1,
    )[:2]
    others = {"Precision": hits / predicted.double(), "Recall": hits / positives.double()}
    return ClassFigures("Average precision", ranking, ranking, positives, unknown, others)


def _count_guesses(data: ReportData) -> tuple[Tensor, Tensor, Tensor]:
    """Count right first guesses, first guesses and pictures of each class: three ``(k,)``."""
    k = len(data.labels)
    truth = class_numbers(data.scores, data.targets)
    known = truth >= 0
    truth, guess = truth[known], data.scores[known].argmax(dim=1)
    return truth[truth == guess].bincount(minlength=k), guess.bincount(minlength=k), truth.bincount(minlength=k)
