"""Temperature and thresholds from logits and targets, and what they are worth on pictures they were not fitted on.

Shapes: n pictures, k labels.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mldecoder.calibration.reliability import Reliability, reliability
from mldecoder.calibration.scaling import Scaling, fit_scaling, fit_temperature, likelihood_loss
from mldecoder.calibration.thresholds import Fit, Wish, fit_thresholds, global_threshold
from mldecoder.config import Task
from mldecoder.errors import DataError
from mldecoder.metrics.counts import count_at_threshold, threshold_from_counts

__all__ = ["Calibration", "Settings", "fit_calibration"]


@dataclass(frozen=True)
class Settings:
    """What is stored in a model: how scores are made, and for ``multi-label`` models thresholds on them."""

    scaling: Scaling
    global_threshold: float | None = None
    thresholds: Tensor | None = None  # (k,) float64
    fallback: Tensor | None = None  # bool (k,): labels with too few positives, which take the global threshold
    own: Fit | None = None  # each label's own fit


@dataclass(frozen=True)
class Calibration:
    """A fit on all pictures, and figures measured out of fold.

    ``figures`` holds fractions by rule: ``"0.5"`` (raw scores), ``"global"`` and ``"per label"``, each with CP, CR,
    CF1, OP, OR, OF1. They, the reliabilities and the loss come from two folds: each half of the pictures is judged by
    what was fitted on the other half. ``only_temperature`` is what a temperature without a bias would give.
    """

    settings: Settings
    task: Task
    wish: Wish
    min_positives: int
    pictures: int
    figures: dict[str, dict[str, float]]
    before: Reliability
    after: Reliability
    only_temperature: Reliability
    loss_before: float
    loss_after: float


def fit_calibration(
    logits: Tensor,
    targets: Tensor,
    task: Task,
    *,
    wish: Wish | None = None,
    min_positives: int = 10,
    seed: int = 0,
) -> Calibration:
    """Fit temperature and thresholds, and judge them on pictures they were not fitted on.

    Args:
        logits: ``(n, k)``.
        targets: 1, 0 or -1 for unknown ``(n, k)``.
        task: With ``"single-label"`` only the temperature is fitted: the best class needs no threshold.
        wish: What thresholds are to reach; the best F1 by default.
        min_positives: Labels with fewer positives take the global threshold.
        seed: Of the halves.
    """
    chosen = wish or Wish()
    n = len(logits)
    if n < 2 or not bool((targets > 0).any()):
        raise DataError(f"Calibration needs at least 2 pictures, some with a known label, got {n} pictures.")
    halves = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tensor_split(2)
    judged = [
        _judge(logits, targets, task, chosen, min_positives, fit_on=halves[1 - i], judge_on=halves[i]) for i in (0, 1)
    ]
    sizes = [len(half) / n for half in halves]
    counts = {rule: judged[0].counts[rule] + judged[1].counts[rule] for rule in judged[0].counts}
    return Calibration(
        settings=_settings(logits, targets, task, chosen, min_positives),
        task=task,
        wish=chosen,
        min_positives=min_positives,
        pictures=n,
        figures={rule: threshold_from_counts(count) for rule, count in counts.items()},
        before=judged[0].before + judged[1].before,
        after=judged[0].after + judged[1].after,
        only_temperature=judged[0].only_temperature + judged[1].only_temperature,
        loss_before=likelihood_loss(logits, targets, task),
        loss_after=math.fsum(size * half.loss for size, half in zip(sizes, judged, strict=True)),
    )


@dataclass(frozen=True)
class _Half:
    """How a fit does on pictures it has not seen."""

    counts: dict[str, Tensor]  # (3, k) by rule
    before: Reliability
    after: Reliability
    only_temperature: Reliability
    loss: float


def _judge(
    logits: Tensor,
    targets: Tensor,
    task: Task,
    wish: Wish,
    min_positives: int,
    *,
    fit_on: Tensor,
    judge_on: Tensor,
) -> _Half:
    # half of the pictures hold about half of the positives, so the limit is halved too
    settings = _settings(logits[fit_on], targets[fit_on], task, wish, -(-min_positives // 2))
    truth = targets[judge_on]
    raw = Scaling().probabilities(logits[judge_on], task)
    made = settings.scaling.probabilities(logits[judge_on], task)
    plain = Scaling(fit_temperature(logits[fit_on], targets[fit_on], task)).probabilities(logits[judge_on], task)
    counts = {}
    if settings.thresholds is not None and settings.global_threshold is not None:
        counts = {
            "0.5": count_at_threshold(raw, truth, 0.5),
            "global": count_at_threshold(made, truth, settings.global_threshold),
            "per label": count_at_threshold(made, truth, settings.thresholds),
        }
    return _Half(
        counts,
        reliability(raw, truth, task),
        reliability(made, truth, task),
        reliability(plain, truth, task),
        likelihood_loss(logits[judge_on], truth, task, settings.scaling),
    )


def _settings(logits: Tensor, targets: Tensor, task: Task, wish: Wish, min_positives: int) -> Settings:
    scaling = fit_scaling(logits, targets, task)
    if task == "single-label":
        return Settings(scaling)
    probabilities = scaling.probabilities(logits, task)
    own = fit_thresholds(probabilities, targets, wish)
    everywhere = float(global_threshold(probabilities, targets, wish).thresholds)
    fallback = (own.positives < max(min_positives, 1)) | own.thresholds.isnan()
    thresholds = own.thresholds.masked_fill(fallback, everywhere)
    return Settings(scaling, everywhere, thresholds, fallback, own)
