"""A loss on angles: a positive must be scored above a margin, a negative below minus that margin.

Shapes: b images, n classes. In the code x is a logit, y its target.
"""

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from mldecoder.errors import ConfigError
from mldecoder.losses.entries import Reduction, check_at_least_zero, per_entry

__all__ = ["AngularCost", "angular_loss"]


@dataclass(frozen=True)
class AngularCost:
    """The costs of known entries in :func:`angular_loss`, of any shape."""

    gamma_neg: float
    gamma_pos: float
    margin: float
    balance: float
    focal_grad: bool

    def __post_init__(self) -> None:
        check_at_least_zero("gamma_neg", self.gamma_neg)
        check_at_least_zero("gamma_pos", self.gamma_pos)
        if not math.isfinite(self.margin):
            raise ConfigError(f"margin must be a finite number of logits, got {self.margin}.")
        if not 0 < self.balance < 1:
            raise ConfigError(f"balance must be above 0 and below 1, got {self.balance}. The paper uses 0.7.")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the cost of each entry."""
        above, below = x - self.margin, -(x + self.margin)
        log_pos, log_neg = F.logsigmoid(above), F.logsigmoid(below)
        # The focusing weights are powers of probabilities; as exponentials of logarithms they never lose a small one.
        weight_pos, weight_neg = (self.gamma_pos * log_neg).exp(), (self.gamma_neg * log_pos).exp()
        if not self.focal_grad:
            weight_pos, weight_neg = weight_pos.detach(), weight_neg.detach()
        positive = self.balance * y * weight_pos * log_pos
        return -(positive + (1 - self.balance) * (1 - y) * weight_neg * log_neg)


def angular_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    gamma_neg: float = 1.0,
    gamma_pos: float = 0.0,
    margin: float = 0.0,
    balance: float = 0.7,
    focal_grad: bool = True,
    unknown_weight: float = 0.0,
    sample_weights: Tensor | None = None,
    class_weights: Tensor | None = None,
    reduction: Reduction = "sum",
) -> Tensor:
    """Asymmetric angular margin loss, AAM (arXiv:2209.06585): ``(b, n), (b, n) -> ()``.

    With ``p+ = sigmoid(x - margin)`` and ``p- = sigmoid(-(x + margin))`` a positive costs
    ``-balance p-^gamma_pos log(p+)`` and a negative ``-(1 - balance) p+^gamma_neg log(p-)``; a target between 0 and 1
    mixes the two. The paper's logit is a cosine c times a scale s, its margin m is one of cosines, and it divides by s:
    here x = s c comes from the head (``head.kind=ml-decoder+``, ``head.cosine=true``), ``margin`` is s m, and the
    division is left to the learning rate. Any other head's logits are taken too.

    Args:
        logits: Scores before the sigmoid.
        targets: 1, 0, between, or -1 for unknown.
        gamma_neg: Focusing of negatives.
        gamma_pos: Focusing of positives.
        margin: How far beyond 0 a logit must lie, in logits.
        balance: Weight of positives; that of negatives is what is left to 1.
        focal_grad: Let gradients pass through the focusing weights.
        unknown_weight: Above 0, an unknown entry is a negative with this weight.
        sample_weights: One weight an image (b,).
        class_weights: One weight a class (n,).
        reduction: "sum", "mean", "image_mean" or "none"; see ``mldecoder.losses``.

    Example:
        >>> angular_loss(torch.zeros(1, 3), torch.tensor([[1, 0, -1]]))
        tensor(0.5892)
    """
    return per_entry(
        AngularCost(gamma_neg, gamma_pos, margin, balance, focal_grad),
        logits,
        targets,
        unknown_weight=unknown_weight,
        sample_weights=sample_weights,
        class_weights=class_weights,
        reduction=reduction,
    )
