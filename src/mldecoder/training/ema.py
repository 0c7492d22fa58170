"""A slowly moving average of the weights, evaluated and saved as weights of its own."""

from copy import deepcopy

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

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
        self._pairs: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def update(self, model: Classifier, step: int) -> None:
        """Move towards the model's weights after optimiser step ``step``."""
        decay = min(self.decay, (1 + step) / (10 + step))
        if not self._pairs:  # the tensors of a model stay the same ones, so they are looked up once
            average, weights = self.model.state_dict(), model.state_dict()
            self._pairs = [(_own_part(average[key]), _own_part(weights[key])) for key in average]
        moving = [pair for pair in self._pairs if pair[0].is_floating_point()]
        torch._foreach_lerp_([own for own, _ in moving], [new for _, new in moving], 1 - decay)
        for own, new in self._pairs:
            if not own.is_floating_point():
                own.copy_(new)


def _own_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor; both models are split alike, so parts can be averaged one by one."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
