"""Can the model learn one batch by heart? If not, something is wrong that more epochs will not mend."""

import torch
from accelerate import Accelerator

from mldecoder.data.dataset import ImageSet
from mldecoder.data.images import TorchImages
from mldecoder.data.transforms import evaluation_transform, normalise
from mldecoder.model import Classifier
from mldecoder.recipes import Recipe
from mldecoder.training.console import Display
from mldecoder.training.loading import collate, note_broken
from mldecoder.training.optim import build_optimiser

__all__ = ["overfit"]


def overfit(
    model: Classifier, train: ImageSet, recipe: Recipe, accelerator: Accelerator, display: Display, steps: int = 100
) -> tuple[float, float]:
    """Train on the first labelled pictures alone, unvaried and without dropout: the loss before and after."""
    labelled = [i for i in range(min(len(train), 10_000)) if (train.targets.row(i) == 1).any()]
    images = TorchImages(train, evaluation_transform(model.config.preprocessing), recipe.data.max_broken)
    batch = collate([images[i] for i in labelled[: min(recipe.training.batch_size, 32)]])
    for line in note_broken(batch, train, images.broken_log()):
        display.say(line)
    pictures = normalise(batch.images.to(accelerator.device), model.config.preprocessing)
    targets = batch.targets.to(accelerator.device)
    loss_of = recipe.loss_of(model.config.task)
    model = model.to(accelerator.device).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    optimiser = build_optimiser(model, recipe.optimiser)
    losses = []
    display.begin("One batch by heart", steps)
    for step in range(steps):
        with accelerator.autocast():
            logits = model(pictures)
        loss = loss_of(logits, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
        losses.append(float(loss.detach()))
        display.advance(step + 1, f"loss {losses[-1]:.3f}")
    return losses[0], losses[-1]
