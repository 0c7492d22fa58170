"""Batch-norm statistics that fit the finished weights and whole pictures.

In training they are a moving average over weights that still changed and pictures that were cut, and those of the
averaged weights are an average of such averages. Here they are measured once more, over pictures as the evaluation
shows them.

Shapes: b batch, h and w height and width.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mldecoder.config import PreprocessingConfig
from mldecoder.data.dataset import ImageSet
from mldecoder.data.images import TorchImages
from mldecoder.data.pictures import shard_windows
from mldecoder.data.transforms import evaluation_transform, normalise
from mldecoder.model import Classifier
from mldecoder.recipes import Recipe
from mldecoder.training.console import Display
from mldecoder.training.kept import KeptPictures
from mldecoder.training.loading import Batch, training_batches, workers_for
from mldecoder.training.order import EpochBatches

__all__ = ["measure_norms", "settle_norms"]


def settle_norms(
    model: Classifier,
    train: ImageSet,
    recipe: Recipe,
    accelerator: Accelerator,
    display: Display,
    kept: KeptPictures | None = None,
) -> None:
    """Take a model's batch-norm statistics anew over the training pictures, each process its share of every step.

    The order is that of an epoch after the last: in the data's own, where classes may come one after another, a step
    would vary too little. As in training, pictures that fill no step are left out, and broken ones are blank.

    Args:
        model: What to settle; without batch norm nothing happens.
        train: Pictures to measure on.
        recipe: Says how many at a time, and how the evaluation shows them.
        accelerator: Device, precision and processes.
        display: What the person sees.
        kept: The same pictures where they are decoded already.
    """
    if not _norms(model):
        return
    settings, size, preprocessing = recipe.training, recipe.evaluation.size, model.config.preprocessing
    if size is not None:
        preprocessing = preprocessing.model_copy(update={"size": (size, size)})
    rank, world = accelerator.process_index, accelerator.num_processes
    order = EpochBatches(len(train), settings.batch_size, seed=settings.seed, rank=rank, world=world)
    order.windows = shard_windows(train.pictures)
    order.set_place(settings.epochs)
    # A canvas shows what the evaluation does only where that squashes pictures too, to no other size.
    if kept is not None and preprocessing.resize == "squash" and size is None:
        batches = kept.unvaried(order)
    else:
        images = TorchImages(train, evaluation_transform(preprocessing), recipe.data.max_broken)
        workers = workers_for(train, accelerator.device, recipe.data.workers)
        batches = training_batches(images, order, accelerator.device, workers)
    display.begin("Batch-norm statistics", len(order))
    with accelerator.autocast():
        measure_norms(model, _shown(islice(batches, len(order)), preprocessing, accelerator.device, display))
    if world > 1:  # as many batches in each process, so the mean of their means is that of all
        for norm in _norms(model):
            for statistic in (norm.running_mean, norm.running_var):
                if statistic is not None:
                    statistic.copy_(accelerator.reduce(statistic, reduction="mean"))


@torch.no_grad()
def measure_norms(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set running mean and variance of every batch norm to their mean over batches ``(b, 3, h, w)``.

    All else is as in evaluation: nothing is dropped.
    """
    was_training, norms = model.training, _norms(model)
    momenta = [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all, each as heavy
        norm.training = True  # not train(): a layer in it that drops something stays as it is
    for images in batches:
        model(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(was_training)


def _norms(model: nn.Module) -> list[_BatchNorm]:
    return [norm for norm in model.modules() if isinstance(norm, _BatchNorm) and norm.track_running_stats]


def _shown(
    batches: Iterator[Batch], preprocessing: PreprocessingConfig, device: torch.device, display: Display
) -> Iterator[Tensor]:
    """Pictures as the model takes them."""
    for done, batch in enumerate(batches, start=1):
        yield normalise(batch.images.to(device, non_blocking=True), preprocessing)
        display.advance(done)
