"""The scores of a finished run on its validation part, with what people verified where that is told apart.

Shapes: n pictures, k classes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from mldecoder.data.dataset import UNKNOWN, ImageSet
from mldecoder.data.detect import open_dataset, split_off
from mldecoder.model import Classifier
from mldecoder.recipes import Recipe
from mldecoder.training.folder import RunFolder
from mldecoder.training.scoring import evaluate_model

__all__ = ["validation_scores"]


def validation_scores(model: Classifier, run: Path) -> tuple[Tensor, Tensor, Tensor | None]:
    """Logits and targets ``(n, k)``, and the targets by people alone where the data has labels by machines too."""
    source, recipe = RunFolder(run).read()
    part = _validation(source, recipe, recipe.data.options).keep_labels(model.labels)
    accelerator = Accelerator(cpu=not torch.accelerator.is_available())
    _, scores = evaluate_model(model.to(accelerator.device), part, recipe, accelerator)
    verified = None
    if recipe.data.options.get("machine_labels"):
        people = _validation(source, recipe, {**recipe.data.options, "machine_labels": False})
        names = [part.pictures.name(int(i)) for i in scores.indices]
        verified = _aligned(people.keep_labels(model.labels), names)
    return scores.logits, scores.targets, verified


def _validation(source: str, recipe: Recipe, options: dict[str, Any]) -> ImageSet:
    task = {} if recipe.data.task is None else {"task": recipe.data.task}
    dataset = open_dataset(source, options=options | task)
    if dataset.val is not None:
        return dataset.val
    return split_off(dataset.train, recipe.data.val_fraction, recipe.training.seed)[1]


def _aligned(people: ImageSet, names: list[str]) -> Tensor:
    """Targets by people for pictures by name; of others people said nothing."""
    place = {people.pictures.name(i): i for i in range(len(people))}
    rows = np.array([place.get(name, -1) for name in names], dtype=np.int64)
    targets = np.full((len(names), len(people.labels)), UNKNOWN, dtype=np.int8)
    targets[rows >= 0] = people.targets.rows(rows[rows >= 0])
    return torch.from_numpy(targets)
