"""The costs of one block of logits and their slopes, in one pass over the block where it is compiled.

Shapes: b images; a block has s slots. The images come last, so that sums over them share a pass with the slopes.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType

import torch
from torch import Tensor

from mldecoder.losses.entries import at_least_float32, costs_of

__all__ = ["BlockCosts", "BlockResult", "compiled"]

BlockResult = tuple[Tensor, Tensor | None, Tensor | None]
"""Costs (s,), slopes (s, b) and slopes of the bias (s,)."""


@dataclass(frozen=True)
class BlockCosts:
    """A loss on a block; what it holds stays the same from block to block."""

    cost: Callable[[Tensor, Tensor], Tensor]
    unknown_weight: float
    slope_dtype: torch.dtype | None  # None: no slopes

    def __call__(
        self,
        logits: Tensor,
        bias: Tensor,
        targets: Tensor,
        slope_scale: Tensor,
        padding: Tensor | None,
        sample_weights: Tensor | None,
        class_weights: Tensor | None,
    ) -> BlockResult:
        """Return sums and slopes of logits ``(s, b)`` that lack their bias ``(s,)``.

        ``slope_scale`` () multiplies the slopes. Padding and class weights are ``(s,)``, sample weights ``(b,)``.
        """
        if padding is not None:
            targets = targets.masked_fill(padding.unsqueeze(1), -1)
        unknown = targets < 0

        def weighted(x: Tensor) -> Tensor:
            costs = costs_of(self.cost, x, targets, unknown, self.unknown_weight)
            if sample_weights is not None:
                costs = costs * sample_weights.to(costs)
            if class_weights is not None:
                costs = costs * class_weights.to(costs).unsqueeze(1)
            return costs

        x = at_least_float32(logits) + bias.unsqueeze(1)
        if self.slope_dtype is None:
            return weighted(x).sum(dim=1), None, None
        costs, slopes = _with_slopes(weighted, x, slope_scale)
        return costs.sum(dim=1), slopes.to(self.slope_dtype), slopes.sum(dim=1)


@functools.cache
def compiled(costs: BlockCosts) -> Callable[..., BlockResult]:
    """Return the same as compiled by torch, once for each set of options."""

    def run(logits: Tensor, bias: Tensor, targets: Tensor, scale: Tensor, *weights: Tensor | None) -> BlockResult:
        return costs(logits, bias, targets, scale, *weights)

    # Torch counts compilations by code object and gives up after eight: every set of options gets one of its own.
    own = FunctionType(run.__code__.replace(), run.__globals__, closure=run.__closure__)
    return torch.compile(own, fullgraph=True, dynamic=True)


def _with_slopes(function: Callable[[Tensor], Tensor], x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of an entry by entry function and ``scale`` times its derivatives."""
    if torch.compiler.is_compiling():
        values, pull, *_ = torch.func.vjp(function, x)
        return values, pull(scale.expand_as(values))[0]
    x = x.detach().requires_grad_()  # torch.func would keep all steps in memory to the end; this frees them on the way
    with torch.enable_grad():
        values = function(x)
    return values.detach(), torch.autograd.grad(values, x, scale.expand_as(values))[0]
