"""Optimiser and schedule."""

import math

from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]  # timm re-exports it without saying so
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from mldecoder.config import ZeroShotConfig
from mldecoder.errors import ConfigError
from mldecoder.model import Classifier
from mldecoder.recipes.recipe import OptimiserSettings, TrainingSettings

__all__ = ["build_optimiser", "build_schedule", "parameter_groups"]


def parameter_groups(
    model: Classifier, settings: OptimiserSettings, extra: nn.Module | None = None
) -> list[dict[str, object]]:
    """Backbone, head and its text projections with their own learning rates; ``extra`` learns as the head does.

    There is no weight decay on biases, norms and other vectors.
    """
    parts: dict[str, tuple[float, list[tuple[str, nn.Parameter]]]] = {
        "backbone": (settings.backbone_factor, list(model.backbone.named_parameters())),
        "head": (settings.head_factor, []),
        "text": (settings.head_factor * settings.text_factor, []),
    }
    for name, parameter in [*model.head.named_parameters(), *(extra.named_parameters() if extra else [])]:
        parts["text" if _reads_text(model, name) else "head"][1].append((name, parameter))
    groups = []
    for part, (factor, named) in parts.items():
        trained = [(name, p) for name, p in named if p.requires_grad]
        plain = [p for name, p in trained if p.ndim <= 1 or name.endswith(".bias")]
        decayed = [p for name, p in trained if p.ndim > 1 and not name.endswith(".bias")]
        for kind, parameters, decay in (("weights", decayed, settings.weight_decay), ("vectors", plain, 0.0)):
            if parameters:
                name = f"{part} {kind}"
                groups.append({"params": parameters, "lr": settings.lr * factor, "weight_decay": decay, "name": name})
    return groups


def _reads_text(model: Classifier, name: str) -> bool:
    """Whether a parameter of the head multiplies text vectors."""
    head = model.config.head
    if not isinstance(head, ZeroShotConfig):
        return False
    return name == "query_projection.weight" or (head.readout == "text" and name == "classify.weight")


def build_optimiser(model: Classifier, settings: OptimiserSettings, extra: nn.Module | None = None) -> Optimizer:
    """An optimiser of timm or torch by name; ``adamw`` is Adam with true weight decay."""
    groups = parameter_groups(model, settings, extra)
    if not groups:
        raise ConfigError("Nothing is left to train. Set training.freeze=none.")
    try:
        return create_optimizer_v2(
            groups, opt=settings.kind, lr=settings.lr, momentum=settings.momentum, filter_bias_and_bn=False
        )
    except ValueError as error:
        raise ConfigError(f"optimiser.kind {settings.kind!r} is not one of timm's: {error}") from error


def build_schedule(optimiser: Optimizer, settings: TrainingSettings, steps: int) -> LRScheduler:
    """The learning rate over ``steps`` optimiser steps, each group in proportion to its own.

    ``one-cycle`` is torch's with the official scripts' share of rising steps; ``cosine`` rises in a line and falls
    along half a cosine.
    """
    if settings.schedule == "one-cycle":
        rates = [group["lr"] for group in optimiser.param_groups]
        return OneCycleLR(
            optimiser,
            max_lr=rates,
            total_steps=max(2, steps),
            pct_start=max(settings.warmup, 1.5 / max(2, steps)),  # torch divides by pct_start * steps - 1
            cycle_momentum=False,
        )
    rising = round(settings.warmup * steps)

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / (rising + 1)
        if settings.schedule == "constant":
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))

    return LambdaLR(optimiser, factor)
