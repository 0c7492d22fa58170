"""A slowly moving average of the weights, evaluated and saved as weights of its own."""

from copy import deepcopy

import torch

from mldecoder.model import Classifier

__all__ = ["Ema"]


class Ema:
    """Average of a model's weights: ``average = decay * average + (1 - decay) * weights`` after each step.

    In the first steps the decay is smaller, ``(1 + step) / (10 + step)``, so that the random start is forgotten.
    Numbers that are not floating point (counters, group slots) are copied.
    """

    def __init__(self, model: Classifier, decay: float) -> None:
        self.decay = decay
        self.model = deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: Classifier, step: int) -> None:
        """Move towards the model's weights after optimiser step ``step``."""
        decay = min(self.decay, (1 + step) / (10 + step))
        own, new = self.model.state_dict(), model.state_dict()
        moving = [key for key, value in own.items() if value.is_floating_point()]
        torch._foreach_lerp_([own[key] for key in moving], [new[key] for key in moving], 1 - decay)
        for key in own.keys() - set(moving):
            own[key].copy_(new[key])
