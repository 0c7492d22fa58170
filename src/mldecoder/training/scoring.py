"""Scores of a model over a set, and the figures made of them.

Shapes: n pictures, k classes.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from mldecoder.config import PreprocessingConfig, Task
from mldecoder.data.dataset import ImageSet
from mldecoder.data.images import BrokenLog
from mldecoder.data.transforms import normalise
from mldecoder.errors import DataError
from mldecoder.heads.split_training import split_layers
from mldecoder.metrics import MultiLabelMetrics, SingleLabelMetrics
from mldecoder.model import Classifier
from mldecoder.recipes import Recipe
from mldecoder.training.loading import Batch, evaluation_batches, note_broken, workers_for
from mldecoder.training.sharded import is_sharded
from mldecoder.training.word_scoring import by_lists, word_figures

__all__ = ["Scores", "evaluate_model", "figures", "main_metric", "score"]


@dataclass(frozen=True)
class Scores:
    """Logits ``(n, k)`` and targets ``(n, k)`` of the pictures that could be read, on the CPU, in the set's order."""

    logits: Tensor
    targets: Tensor
    indices: Tensor
    broken: BrokenLog

    def probabilities(self, task: Task) -> Tensor:
        """Sigmoid, or softmax where exactly one label is right."""
        return self.logits.softmax(dim=1) if task == "single-label" else self.logits.sigmoid()


def score(
    model: nn.Module,
    image_set: ImageSet,
    preprocessing: PreprocessingConfig,
    accelerator: Accelerator,
    *,
    batch_size: int,
    workers: int | None = None,
    flip: bool = False,
    max_broken: float = 0.01,
    advance: Callable[[int], None] = lambda _: None,
    batches: Iterator[Batch] | None = None,
) -> Scores:
    """Run a model over a set, shared among the processes; every process gets all scores, each picture once.

    Args:
        model: Takes preprocessed pictures, gives logits.
        image_set: What to run over.
        preprocessing: How the model wants its pictures.
        accelerator: Device, precision and processes.
        batch_size: Pictures at a time in one process.
        workers: Decoding processes; ``None`` chooses.
        flip: Average with the logits of the mirrored picture.
        max_broken: How many pictures may be broken.
        advance: Is told how many pictures were done.
        batches: This process's share of the set, where it is decoded already.
    """
    log = BrokenLog(max_broken, total=len(image_set))
    batches = batches or evaluation_batches(
        image_set,
        preprocessing,
        batch_size=batch_size,
        device=accelerator.device,
        workers=workers_for(image_set, accelerator.device, workers),
        max_broken=max_broken,
        rank=accelerator.process_index,
        world=accelerator.num_processes,
    )
    was_training, sharded = model.training, is_sharded(model) or bool(split_layers(model))
    model.eval()
    logits, targets, indices = [], [], []
    # Weights that are gathered in inference mode could not be trained afterwards.
    with torch.no_grad() if sharded else torch.inference_mode(), accelerator.autocast():
        for batch in batches:
            note_broken(batch, image_set, log)
            whole = ~batch.broken
            images = normalise(batch.images.to(accelerator.device, non_blocking=True), preprocessing)
            out = model(images)
            if flip:
                out = (out + model(images.flip(-1))) / 2
            logits.append(out.float().cpu()[whole])
            targets.append(batch.targets[whole])
            indices.append(batch.indices[whole])
            advance(len(batch.indices))
        if sharded:  # a process that runs out of pictures still holds weights that the others need
            blank = torch.zeros(1, 3, *preprocessing.size, device=accelerator.device)
            passes = math.ceil(math.ceil(len(image_set) / accelerator.num_processes) / batch_size)
            for _ in range((passes - len(logits)) * (2 if flip else 1)):
                model(blank)
    model.train(was_training)
    k = logits[0].shape[1] if logits else len(image_set.labels)
    own = (
        torch.cat([torch.empty(0, k), *logits]),
        torch.cat([torch.empty(0, len(image_set.labels), dtype=torch.int8), *targets]),
        torch.cat([torch.empty(0, dtype=torch.long), *indices]),
    )
    return _joined(own, log, accelerator)


def figures(scores: Scores, labels: tuple[str, ...], task: Task, threshold: float = 0.5) -> dict[str, float]:
    """The metrics that fit the task, in percent."""
    if task == "single-label":
        single = SingleLabelMetrics(labels)
        single.update(scores.logits, scores.targets)
        return single.compute()
    multi = MultiLabelMetrics(labels, threshold=threshold)
    multi.update(scores.logits, scores.targets)
    return multi.compute()


def evaluate_model(
    model: Classifier,
    image_set: ImageSet,
    recipe: Recipe,
    accelerator: Accelerator,
    batches: Iterator[Batch] | None = None,
) -> tuple[dict[str, float], Scores]:
    """Figures of a model on a set as the recipe wants them measured, and the scores behind them.

    ``batches`` are this process's share of the set, where it is decoded already.
    """
    wish = recipe.evaluation
    preprocessing = model.config.preprocessing
    if wish.size is not None:
        preprocessing = preprocessing.model_copy(update={"size": (wish.size, wish.size)})
    scores = score(
        by_lists(model),
        image_set,
        preprocessing,
        accelerator,
        batch_size=wish.batch_size or recipe.training.batch_size,
        workers=recipe.data.workers,
        flip=wish.flip,
        max_broken=recipe.data.max_broken,
        batches=batches,
    )
    if not (scores.targets == 1).any():
        raise DataError(
            f"Figures need pictures with a known label, got none among the {len(scores.targets)} pictures that could "
            f"be read. Label some, or evaluate on other data."
        )
    if not model.zero_shot or model.config.task == "single-label":
        return figures(scores, model.labels, model.config.task, wish.threshold), scores
    found = word_figures(model, scores.logits, scores.targets, wish.threshold)
    return found, replace(scores, logits=scores.logits[:, : len(model.labels)])


def main_metric(task: Task, unseen: Sequence[str] = ()) -> str:
    """The figure by which weights are chosen: where labels are held out, never one that they have a part in."""
    if unseen:
        return "seen_mAP"
    return "top1" if task == "single-label" else "mAP"


def _joined(own: tuple[Tensor, Tensor, Tensor], broken: BrokenLog, accelerator: Accelerator) -> Scores:
    if accelerator.num_processes > 1:
        parts = gather_object([(*own, broken.reasons)])
        own = (torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]), torch.cat([p[2] for p in parts]))
        for part in parts:
            broken.add_all(part[3])
    logits, targets, indices = own
    order = indices.argsort()
    return Scores(logits[order], targets[order], indices[order], broken)
