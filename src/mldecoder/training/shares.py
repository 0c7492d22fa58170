"""What the loss of a share counts in the loss of its step.

A step is shared by processes, and each share is taken in goes. Processes average their gradients, goes add theirs; the
weights here make that the gradient of the whole step's loss, however it was shared.
"""

from collections.abc import Sequence
from inspect import signature

import torch
from accelerate import Accelerator
from torch import Tensor

from mldecoder.data.dataset import UNKNOWN
from mldecoder.losses import Loss
from mldecoder.training.loading import Batch

__all__ = ["Shares", "known"]


class Shares:
    """Weights of the goes of a step.

    A sum over the step is the sum of the shares, and a mean over pictures the mean of their means. A mean over what is
    known is neither: where targets are unknown, or pictures broken, shares differ in how much they know.

    Args:
        loss: The loss, with its options.
        accelerator: The processes.
        goes: Goes a step.
        rows: Count pictures that have a label, as softmax does, and not known entries.
        by_words: Targets are made within the step, for queries that vary: shares are taken to know equally much.
        whole: The loss of a go is that of all processes already, the same in each (``split_loss``).
    """

    def __init__(
        self,
        loss: Loss,
        accelerator: Accelerator,
        goes: int,
        *,
        rows: bool = False,
        by_words: bool = False,
        whole: bool = False,
    ) -> None:
        options = {name: parameter.default for name, parameter in signature(loss).parameters.items()}
        self.accelerator, self.goes, self.rows = accelerator, goes, rows
        self.whole = whole
        self.sums = options["reduction"] == "sum"
        alone = goes == 1 and accelerator.num_processes == 1
        ignores = options["reduction"] == "mean" and options.get("unknown_weight", 0) == 0
        self.counts = ignores and not alone and not by_words

    def weights(self, batches: Sequence[Batch]) -> Tensor:
        """What to multiply the loss of each go with: ``(goes,)``, on the device."""
        device = self.accelerator.device
        if not self.counts:
            return torch.full((self.goes,), self._factor() if self.sums else 1 / self.goes, device=device)
        own = torch.tensor([known(batch.targets, rows=self.rows) for batch in batches], device=device).float()
        everyone: Tensor = self.accelerator.reduce(own, reduction="sum")
        weights: Tensor = (everyone if self.whole else own * self._factor()) / everyone.sum().clamp(min=1)
        return weights

    def _factor(self) -> int:
        """Processes average their gradients: the sum of the shares' losses is so many times the mean."""
        return 1 if self.whole else self.accelerator.num_processes


def known(targets: Tensor, *, rows: bool) -> int:
    """How much a mean is over: the known entries of targets ``(b, n)``, or the rows with a positive one."""
    return int((targets > 0).any(dim=1).sum()) if rows else int((targets != UNKNOWN).sum())
