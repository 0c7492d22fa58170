"""What can be known to go wrong before the first step."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mldecoder.config import Task
from mldecoder.data.dataset import ImageSet
from mldecoder.errors import TrainingError
from mldecoder.losses.grouped import COSTS
from mldecoder.recipes import Recipe

__all__ = ["Findings", "check"]


@dataclass(frozen=True)
class Findings:
    """Lines worth reading before hours of training."""

    warnings: tuple[str, ...]


def check(train: ImageSet, val: ImageSet, recipe: Recipe, task: Task) -> Findings:
    """Look at data and recipe; raise on what cannot train, warn about what probably will not.

    Raises:
        TrainingError: when nothing could be learnt.
    """
    positives, val_positives = train.targets.counts().positives, val.targets.counts().positives
    if len(train) == 0 or len(val) == 0:
        raise TrainingError(f"Training needs pictures, got {len(train)} to train on and {len(val)} to validate on.")
    if int(positives.sum()) == 0:
        raise TrainingError("All training targets are zero: no picture has any label. Check the label column or file.")
    if int(val_positives[: len(train.labels)].sum()) == 0:  # labels that are not trained stand behind
        raise TrainingError(
            f"None of the {len(val)} validation pictures has a label, so nothing could be measured. Label some; where "
            f"they were split off, set data.val_fraction higher or data.options.drop_unlabelled=true."
        )
    if recipe.optimiser.lr == 0 or (recipe.optimiser.head_factor == 0):
        raise TrainingError(
            f"The learning rate of the head is 0 (optimiser.lr={recipe.optimiser.lr}, "
            f"head_factor={recipe.optimiser.head_factor}): it would stay random. Set both above 0."
        )
    if task == "single-label" and len(train.labels) < 2:
        raise TrainingError("Single-label training needs at least 2 labels, got 1. Set data.task=multi-label.")
    if task == "multi-label" and recipe.loss.get("kind") == "softmax":
        raise TrainingError("loss.kind=softmax is for one label a picture, this data has several. Use asymmetric.")
    if task == "single-label" and recipe.augment.mosaic:
        raise TrainingError("augment.mosaic shows four pictures in one, this data has one label. Set it to 0.")
    kind = recipe.named_loss(task)[0]
    if recipe.training.parallel == "split" and kind not in COSTS:
        raise TrainingError(
            f"training.parallel=split needs a loss with a cost a label, {', '.join(COSTS)}, got {kind}. "
            f"Set loss.kind=bce, or training.parallel=fsdp."
        )
    warnings = [
        *_never(train.labels, positives, "training"),
        *_never(val.labels, val_positives, "validation"),
        *_always(train.labels, positives, len(train)),
    ]
    if recipe.optimiser.backbone_factor == 0 and recipe.training.freeze == "none":
        warnings.append("optimiser.backbone_factor is 0: it does not learn. training.freeze=backbone is faster.")
    if len(train) < recipe.training.batch_size:
        warnings.append(
            f"{len(train)} pictures do not fill one batch of {recipe.training.batch_size}: they are repeated. "
            f"Set training.batch_size={max(1, len(train) // 4)}."
        )
    return Findings(tuple(warnings))


def _never(labels: tuple[str, ...], positives: NDArray[np.int64], name: str) -> list[str]:
    missing = [label for label, count in zip(labels, positives.tolist(), strict=True) if count == 0]
    if not missing:
        return []
    what = "cannot be learnt" if name == "training" else "are left out of the mean"
    return [f"{len(missing)} labels never occur in the {name} part and {what}: {_few(missing)}."]


def _always(labels: tuple[str, ...], positives: NDArray[np.int64], pictures: int) -> list[str]:
    full = [label for label, count in zip(labels, positives.tolist(), strict=True) if count == pictures]
    return [f"{len(full)} labels are on every training picture and say nothing: {_few(full)}."] if full else []


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
