"""A whole training step on pictures that lie on the device already, and such steps timed in turns.

What reading pictures costs is the same for every head, and hides what heads cost.

Shapes: b batch, n labels.
"""

import math
from collections.abc import Mapping

import torch

from mldecoder.bench.clock import Runner, take_turns
from mldecoder.bench.place import Place
from mldecoder.data.transforms import normalise
from mldecoder.errors import ConfigError, TrainingError
from mldecoder.recipes import Recipe
from mldecoder.training.build import build_model
from mldecoder.training.console import Display
from mldecoder.training.ema import Ema
from mldecoder.training.mix import mix
from mldecoder.training.optim import build_optimiser

__all__ = ["TrainingStep", "device_milliseconds", "place_on", "time_rounds"]

_SHOWN = 0.04  # share of the labels that a picture shows: 2.9 of COCO's 80


class TrainingStep:
    """A recipe's model, and what :class:`mldecoder.training.loop.Trainer` does with it between two pictures.

    Args:
        recipe: Of several labels a picture; its first weights are as it says.
        labels: How many labels there are.
        place: Device and precision.
    """

    def __init__(self, recipe: Recipe, labels: int, place: Place) -> None:
        settings = recipe.training
        if settings.compile or settings.grouped_loss or settings.accumulate > 1 or recipe.head.kind == "zero-shot":
            raise ConfigError(
                "The timed step is the plain one, got a recipe with compile, grouped_loss, accumulate or zero-shot. "
                "Leave that out, or time whole runs with mldecoder train."
            )
        names = tuple(f"label {number}" for number in range(labels))
        model = build_model(recipe, names, "multi-label", Display(enabled=False))
        if settings.freeze == "backbone":
            model.backbone.requires_grad_(False)
        model.to(place.device)
        if settings.channels_last and place.cuda:
            model.to(memory_format=torch.channels_last)
        self.recipe, self.place, self.model = recipe, place, model.train()
        self.ema = Ema(model, settings.ema_decay) if settings.ema_decay else None
        self.optimiser = build_optimiser(model, recipe.optimiser)
        self.compute_loss = recipe.loss_of("multi-label")
        shape = (settings.batch_size, 3, *model.config.preprocessing.size)
        self.images = torch.randint(256, shape, dtype=torch.uint8, device=place.device)
        self.targets = (torch.rand(shape[0], labels, device=place.device) < _SHOWN).to(torch.int8)  # (b, n)
        self.loss, self.steps = torch.zeros(()), 0

    def __call__(self) -> None:
        """Take the step."""
        images = normalise(self.images, self.model.config.preprocessing)
        images, targets = mix(images, self.targets, self.recipe.augment)
        with self.place.casting():
            logits = self.model(images)
        loss = self.compute_loss(logits.float(), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.recipe.training.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.training.clip_norm)
        self.optimiser.step()
        self.optimiser.zero_grad()
        if self.ema is not None:
            self.ema.update(self.model, self.steps)
        self.loss, self.steps = loss.detach(), self.steps + 1


def place_on(device: str) -> Place:
    """The precision that training has there by default: bf16 under autocast on GPUs, else float32."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("torch finds no CUDA device here. Use --device cpu.")
    return Place(torch.device(device), "bf16" if device == "cuda" else "fp32", autocast=device == "cuda")


def time_rounds(
    steps: Mapping[str, TrainingStep], place: Place, *, block: int, rounds: int, warm_up: int = 2
) -> dict[str, list[float]]:
    """Seconds of one step, by name and round: in each round every name has a block of ``block`` steps.

    The first ``warm_up`` rounds are not told.
    """
    runners = {name: Runner(step, steps=block) for name, step in steps.items()}
    take_turns(list(runners.values()), place, repeats=warm_up + rounds, budget=math.inf, after=_nothing)
    for name, runner in runners.items():
        if runner.failure is not None:
            raise TrainingError(f"{name}: {runner.failure.detail or runner.failure.status}.")
        loss = float(steps[name].loss)
        if not math.isfinite(loss):  # such numbers are computed with at another speed
            raise TrainingError(f"{name}: the loss must be a number, got {loss}. Use --set optimiser.lr=1e-5.")
    return {name: runner.seconds[warm_up:] for name, runner in runners.items()}


def device_milliseconds(step: TrainingStep, count: int = 10) -> float | None:
    """How long the device computes in a step, summed over its kernels: the same however long it waits for the host.

    None on the CPU, where there is no such difference, and where the kernels may not be looked at.
    """
    if not step.place.cuda:
        return None
    step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(count):
            step()
        torch.cuda.synchronize()
    total = sum(event.self_device_time_total for event in found.key_averages())  # in microseconds
    return total / 1000 / count if total else None


def _nothing() -> None:
    """Nothing is to be done after a round."""
