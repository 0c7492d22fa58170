"""The way through the blocks of a group fully-connected layer: costs, and gradients before anybody asks.

Shapes: b images, k queries, g columns a group, d width; a block has q queries and w columns of each.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mldecoder.errors import TrainingError
from mldecoder.heads.blocks import Block
from mldecoder.losses.block_costs import BlockResult
from mldecoder.losses.target_blocks import TargetBlocks

__all__ = ["GroupedLoss", "Task", "walk"]


@dataclass(frozen=True)
class Task:
    """What one call has to do, apart from the tensors that get gradients."""

    blocks: list[Block]
    targets: TargetBlocks
    costs: Callable[..., BlockResult]
    dtype: torch.dtype  # of the products
    scale: Tensor  # of the reduction: what multiplies the sum of the costs
    slope_scale: Tensor  # what enters the slopes
    rest: Tensor | None  # what multiplies the gradients at the end
    padding: Tensor | None  # (k * g,)
    sample_weights: Tensor | None  # (b,)
    class_weights: Tensor | None  # (k * g,)


class GroupedLoss(torch.autograd.Function):
    """The loss, with its gradients ready before anybody asks."""

    @staticmethod
    def forward(ctx: "_Context", x: Tensor, weight: Tensor, bias: Tensor, task: Task) -> Tensor:
        """Walk through the blocks and keep the gradients."""
        needed = ctx.needs_input_grad
        loss, ctx.gradients = walk(x, weight, bias, task, (needed[0], needed[1], needed[2]))
        ctx.rest = task.rest
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: "_Context", grad: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients and hand them out."""
        if ctx.gradients is None:
            raise TrainingError("The gradients of a grouped loss are handed out once. Call grouped_loss again.")
        # Handed over, not kept: autograd copies a gradient that somebody else still holds.
        gradients, ctx.gradients = ctx.gradients, None
        for gradient in gradients:
            if gradient is not None:
                _scale(gradient, grad if ctx.rest is None else grad * ctx.rest)
        return *gradients, None


class _Context(torch.autograd.function.FunctionCtx):
    """What the way forwards leaves for the way back."""

    needs_input_grad: tuple[bool, ...]
    gradients: tuple[Tensor | None, ...] | None
    rest: Tensor | None


def walk(
    x: Tensor, weight: Tensor, bias: Tensor, task: Task, needed: tuple[bool, bool, bool]
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Go through the blocks: the loss and the gradients wanted."""
    x, weight, bias = x.detach(), weight.detach(), bias.detach()  # a compiler would ask the bias for its gradient
    exact = torch.promote_types(task.dtype, torch.float32)
    split = task.blocks[0].columns.stop < weight.shape[2]  # then x's gradient is a sum over blocks, in full precision
    grad_x = torch.empty(x.shape, dtype=exact if split else x.dtype, device=x.device) if needed[0] else None
    grad_weight = torch.empty_like(weight) if needed[1] else None
    grad_bias = torch.empty_like(bias, dtype=exact) if needed[2] else None
    with torch.autocast(x.device.type, enabled=False):
        sums = [_block(block, x, weight, bias, task, grad_x, grad_weight, grad_bias) for block in task.blocks]
    if grad_x is not None:
        grad_x = grad_x.to(x.dtype)
    return torch.stack(sums).sum() * task.scale, (grad_x, grad_weight, grad_bias)


def _block(
    block: Block,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    task: Task,
    grad_x: Tensor | None,
    grad_weight: Tensor | None,
    grad_bias: Tensor | None,
) -> Tensor:
    """Fill in one block's part of the gradients, and return the sum of its costs."""
    part = (block.queries, slice(None), block.columns)
    inputs = x[:, block.queries].transpose(0, 1).to(task.dtype)  # (q, b, d), no copy in the same precision
    weights = weight[part].transpose(1, 2).to(task.dtype)  # (q, w, d)
    cost, slopes, bias_slopes = task.costs(
        torch.bmm(weights, inputs.transpose(1, 2)).flatten(0, 1),  # (s, b)
        bias[block.slots],
        task.targets(block),
        task.slope_scale,
        None if task.padding is None else task.padding[block.slots],
        task.sample_weights,
        None if task.class_weights is None else task.class_weights[block.slots],
    )
    if slopes is not None:
        slopes = slopes.view(*weights.shape[:2], len(x)).transpose(1, 2)  # (q, b, w)
        if grad_weight is not None:
            _product(inputs.transpose(1, 2), slopes, grad_weight[part])
        if grad_x is not None:
            _product(slopes, weights, grad_x[:, block.queries].transpose(0, 1), add=block.columns.start > 0)
    if bias_slopes is not None and grad_bias is not None:
        grad_bias[block.slots] = bias_slopes
    return cost.sum()


def _product(a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> None:
    """Write or add the products ``a @ b`` to ``out``, which may be a view and of a higher precision."""
    if add:
        out.add_(torch.bmm(a, b))
    elif out.dtype == a.dtype:
        torch.bmm(a, b, out=out)
    elif out.dtype == torch.float32 and out.is_cuda and torch.version.hip is None:
        torch.bmm(a, b, out_dtype=out.dtype, out=out)  # rounds once, and needs no buffer
    else:
        out.copy_(torch.bmm(a, b))


def _scale(gradient: Tensor, factor: Tensor) -> None:
    """Multiply in place; by 1, as in plain training, it should cost nothing."""
    if gradient.is_cuda and importlib.util.find_spec("triton") is not None:
        from mldecoder.losses.scale_kernel import scale_

        scale_(gradient, factor)
    elif gradient.device.type != "cpu" or factor != 1:  # on the CPU nobody waits for the answer
        gradient.mul_(factor)
