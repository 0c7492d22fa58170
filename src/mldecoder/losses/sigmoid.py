"""Losses with one sigmoid a class, for images with any number of tags: ASL, focal, binary cross-entropy.

Shapes: b images, n classes. In the code x is a logit, y its target, p its probability and q = 1 - p.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mldecoder.errors import ConfigError
from mldecoder.losses.entries import Reduction, check_at_least_zero, check_shapes, check_smoothing, per_entry

__all__ = [
    "AsymmetricCost",
    "BinaryCost",
    "FocalCost",
    "asymmetric_loss",
    "binary_cross_entropy",
    "focal_loss",
]

# Float32 rounds the probability of logits above 16.7 to 1; beyond this logit a negative follows the tangent.
SATURATED = 18.0
# exp(-80) is still a normal float32: probabilities taken from logits within +-80 are never 0.
FAR = 80.0


@dataclass(frozen=True)
class AsymmetricCost:
    """The costs of known entries in :func:`asymmetric_loss`, of any shape."""

    gamma_neg: float
    gamma_pos: float
    clip: float
    focal_grad: bool

    def __post_init__(self) -> None:
        check_at_least_zero("gamma_neg", self.gamma_neg)
        check_at_least_zero("gamma_pos", self.gamma_pos)
        if not 0 <= self.clip < 1:
            raise ConfigError(f"clip must be at least 0 and below 1, got {self.clip}. The paper uses 0.05.")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the cost of each entry."""
        log_p, log_not_p, p_m, q = _log_terms(x, self.clip)
        weight_pos, weight_neg = _power(q, self.gamma_pos), _power(p_m, self.gamma_neg)
        if not self.focal_grad:  # detach, rather than switching the caller's grad mode as the official code does
            weight_pos, weight_neg = weight_pos.detach(), weight_neg.detach()
        return -(y * weight_pos * log_p + (1 - y) * weight_neg * log_not_p)


@dataclass(frozen=True)
class FocalCost:
    """The costs of known entries in :func:`focal_loss`, of any shape."""

    gamma: float
    alpha: float | None
    focal_grad: bool

    def __post_init__(self) -> None:
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise ConfigError(f"alpha must be between 0 and 1, got {self.alpha}. Leave it out for no balancing.")
        check_at_least_zero("gamma", self.gamma)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the cost of each entry."""
        share_pos, share_neg = (1.0, 1.0) if self.alpha is None else (self.alpha, 1 - self.alpha)
        log_p, log_not_p, p, q = _log_terms(x, 0.0)
        weight_pos, weight_neg = _power(q, self.gamma), _power(p, self.gamma)
        if not self.focal_grad:
            weight_pos, weight_neg = weight_pos.detach(), weight_neg.detach()
        return -(share_pos * y * weight_pos * log_p + share_neg * (1 - y) * weight_neg * log_not_p)


@dataclass(frozen=True)
class BinaryCost:
    """The costs of known entries in :func:`binary_cross_entropy`, of any shape; ``num_classes`` is for smoothing."""

    label_smoothing: float
    target_threshold: float | None
    num_classes: int

    def __post_init__(self) -> None:
        check_smoothing(self.label_smoothing)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the cost of each entry."""
        if self.target_threshold is not None:
            y = (y > self.target_threshold).to(y.dtype)
        y = y * (1 - self.label_smoothing) + self.label_smoothing / self.num_classes
        return -(y * F.logsigmoid(x) + (1 - y) * F.logsigmoid(-x))


def asymmetric_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    gamma_neg: float = 4.0,
    gamma_pos: float = 0.0,
    clip: float = 0.05,
    focal_grad: bool = False,
    unknown_weight: float = 0.0,
    sample_weights: Tensor | None = None,
    class_weights: Tensor | None = None,
    reduction: Reduction = "sum",
) -> Tensor:
    """Asymmetric loss, ASL (arXiv:2009.14119): ``(b, n), (b, n) -> ()``.

    With p the probability and ``p_m = max(p - clip, 0)``, a positive costs ``-(1 - p)^gamma_pos log(p)`` and a
    negative ``-p_m^gamma_neg log(1 - p_m)``; a target between 0 and 1 mixes the two.

    Where float32 rounds p to 1 the formula gives a negative a gradient of about nothing: from a logit of 18 on
    we follow the tangent there, so the gradient stays at about 2e-7 (clip 0.05) and is never 0. The cost is
    larger than the formula's by less than 6e-5 at a logit of 200. Without clip the formula needs no help.

    Args:
        logits: Scores before the sigmoid.
        targets: 1, 0, between, or -1 for unknown.
        gamma_neg: Focusing of negatives; the paper takes 4, and 7 for Open Images.
        gamma_pos: Focusing of positives.
        clip: Probability margin m, below which negatives cost nothing.
        focal_grad: Let gradients pass through the focusing weights. The official training does not.
        unknown_weight: Above 0, an unknown entry is a negative with this weight: the paper's treatment of the
            untagged labels of Open Images.
        sample_weights: One weight an image (b,).
        class_weights: One weight a class (n,).
        reduction: "sum" as in the paper, "mean", "image_mean" or "none"; see ``mldecoder.losses``.

    Example:
        >>> asymmetric_loss(torch.zeros(1, 3), torch.tensor([[1, 0, -1]]), clip=0.0)
        tensor(0.7365)
    """
    return per_entry(
        AsymmetricCost(gamma_neg, gamma_pos, clip, focal_grad),
        logits,
        targets,
        unknown_weight=unknown_weight,
        sample_weights=sample_weights,
        class_weights=class_weights,
        reduction=reduction,
    )


def focal_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    gamma: float = 2.0,
    alpha: float | None = None,
    focal_grad: bool = True,
    unknown_weight: float = 0.0,
    sample_weights: Tensor | None = None,
    class_weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Focal loss (arXiv:1708.02002): ``(b, n), (b, n) -> ()``.

    A positive costs ``-alpha (1 - p)^gamma log(p)``, a negative ``-(1 - alpha) p^gamma log(1 - p)``; without
    ``alpha`` both factors are 1. Gradients pass through the weights unless ``focal_grad`` is off.
    """
    return per_entry(
        FocalCost(gamma, alpha, focal_grad),
        logits,
        targets,
        unknown_weight=unknown_weight,
        sample_weights=sample_weights,
        class_weights=class_weights,
        reduction=reduction,
    )


def binary_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    label_smoothing: float = 0.0,
    target_threshold: float | None = None,
    unknown_weight: float = 0.0,
    sample_weights: Tensor | None = None,
    class_weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Binary cross-entropy, one sigmoid a class: ``(b, n), (b, n) -> ()``.

    Args:
        logits: Scores before the sigmoid.
        targets: 1, 0, between, or -1 for unknown.
        label_smoothing: s turns a target y into ``y (1 - s) + s / n``, as timm's BCE does for the A1 recipe: made
            for one class out of many.
        target_threshold: Targets above it become 1, the others 0, before smoothing: mixed images (mixup, cutmix)
            then hold both classes, as in "ResNet strikes back" (arXiv:2110.00476).
        unknown_weight: Above 0, an unknown entry is a negative with this weight.
        sample_weights: One weight an image (b,).
        class_weights: One weight a class (n,).
        reduction: "mean", "sum", "image_mean" or "none"; see ``mldecoder.losses``.
    """
    check_shapes(logits, targets, sample_weights, class_weights)
    return per_entry(
        BinaryCost(label_smoothing, target_threshold, logits.shape[1]),
        logits,
        targets,
        unknown_weight=unknown_weight,
        sample_weights=sample_weights,
        class_weights=class_weights,
        reduction=reduction,
    )


def _log_terms(x: Tensor, clip: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return log p, log(1 - p_m), p_m = max(p - clip, 0) and q, none of them spoilt by rounding p to 1."""
    near = x.clamp(-FAR, FAR)
    p_m = (near.sigmoid() - clip).clamp(min=0.0)
    q = (-near).sigmoid()
    if clip == 0:
        return F.logsigmoid(x), F.logsigmoid(-x), p_m, q
    # log(1 - p_m) is log(q + clip): precise where p is large. Where p is small log1p(-p_m) is. Each half is
    # computed on its own side only, as torch.where would pass on a NaN gradient from the other side.
    large, small = x.clamp(0.0, SATURATED), x.clamp(max=0.0)
    log_large = ((-large).sigmoid() + clip).clamp(max=1.0).log()
    log_small = torch.log1p(-(small.sigmoid() - clip).clamp(min=0.0))
    q_end = 1 / (1 + math.exp(SATURATED))
    slope = (1 - q_end) * q_end / (q_end + clip)  # of -log(q + clip) where the tangent starts
    log_not_p = torch.where(x > 0, log_large, log_small) - slope * (x - SATURATED).relu()
    return F.logsigmoid(x), log_not_p, p_m, q


def _power(base: Tensor, exponent: float) -> Tensor:
    """Return ``base ** exponent``, but 0 with gradient 0 where the base is 0: the cost is 0 there anyway."""
    above = base > 0
    return torch.where(above, torch.where(above, base, 1.0).pow(exponent), 0.0)
