"""Group fully-connected layer and loss in one, block by block: the (b, n) logits and their gradient never exist.

Shapes: b images, n classes, k queries, g columns a group, d width; a block has q queries and w columns of each.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import fields
from typing import cast

import torch
from torch import Tensor

from mldecoder.errors import ConfigError, InputError
from mldecoder.heads import GroupLinear
from mldecoder.heads.blocks import blocks, check_input, chunk_within, product_dtype, to_slots
from mldecoder.losses.block_costs import BlockCosts, compiled
from mldecoder.losses.entries import check_at_least_zero, check_reduction, check_weights
from mldecoder.losses.grouped_walk import GroupedLoss, Task, walk
from mldecoder.losses.registry import Option, all_options
from mldecoder.losses.sigmoid import AsymmetricCost, BinaryCost, FocalCost
from mldecoder.losses.sparse_targets import SparseTargets
from mldecoder.losses.target_blocks import TargetBlocks, dense_blocks, known_entries, sparse_blocks

__all__ = ["grouped_loss"]

WORK_BYTES = 128 * 2**20
"""What the buffers of a block may take together; the gradients themselves are not counted."""
PLAIN_COPIES = 31  # values that autograd holds for each logit of a block at most, measured: see the tests
HALF_LIFT = 256.0  # float16 would round the slopes of easy entries, and any mean over many, to 0

COSTS: Mapping[str, type[AsymmetricCost | BinaryCost | FocalCost]] = {
    "asymmetric": AsymmetricCost,
    "bce": BinaryCost,
    "focal": FocalCost,
}


def grouped_loss(
    x: Tensor,
    layer: GroupLinear,
    targets: SparseTargets | Tensor,
    *,
    kind: str = "asymmetric",
    options: Mapping[str, Option] | None = None,
    sample_weights: Tensor | None = None,
    class_weights: Tensor | None = None,
    chunk: int | None = None,
    fuse: bool | None = None,
    num_classes: int | None = None,
) -> Tensor:
    """Return the loss of ``layer(x)`` without holding the logits: ``(b, k, d) -> ()``.

    Equal to ``build(kind, options)(layer(x), targets)``, gradients included. Those of ``x``, the weight and the bias
    are computed on the way forwards, block by block, and only scaled on the way back; so ``backward`` works once.
    The weight's gradient is the one large buffer, and becomes ``weight.grad`` itself if that is None before.
    Under autocast products are computed in its precision, costs in float32.

    Args:
        x: What the decoder gives, one vector a query.
        layer: The group fully-connected layer.
        targets: Lists of classes, or a dense tensor ``(b, n)``, of 1, 0, anything between, and -1 for unknown.
        kind: "asymmetric", "bce" or "focal". Softmax is not here: it needs all logits of an image at once.
        options: The keyword options of that loss, as for :func:`mldecoder.losses.build`, ``unknown_weight`` and
            ``reduction`` among them; any reduction but "none".
        sample_weights: One weight an image (b,).
        class_weights: One weight a class (n,).
        chunk: Logits an image that exist at a time; by default as many as fit into ``WORK_BYTES``.
        fuse: Compile the costs of a block into one pass. By default on a GPU where Triton is installed: there the
            first step takes some seconds longer, and every other is several times faster.
        num_classes: Over how many classes label smoothing spreads: more than the layer's where that is a share of one.

    Example:
        >>> layer = GroupLinear(num_classes=1000, num_queries=10, width=8)
        >>> targets = SparseTargets.from_lists([[3, 14], [15]], unknown=[[9], []], num_classes=1000)
        >>> grouped_loss(torch.zeros(2, 10, 8), layer, targets, options={"reduction": "mean", "clip": 0.0}).ndim
        0
    """
    filled = _checked_options(kind, options)
    check_input(x, layer)
    _check_targets(len(x), layer, targets)
    check_weights(len(x), layer.num_classes, sample_weights, class_weights)
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in (x, layer.weight, layer.bias))
    fused = _can_fuse(x) if fuse is None else fuse
    dtype = product_dtype(x, layer.weight)
    if chunk is None:
        chunk = _chunk(x, layer, targets, dtype, fused)
    costs = BlockCosts(
        _cost(kind, filled, num_classes or layer.num_classes),
        unknown_weight=float(cast(float, filled["unknown_weight"])),
        slope_dtype=dtype if wanted else None,
    )
    scale = _scale(filled, targets, layer.num_classes, torch.promote_types(dtype, torch.float32))
    lift = torch.full_like(scale, HALF_LIFT) if dtype == torch.float16 else None
    task = Task(
        list(blocks(layer, chunk)),
        _target_blocks(targets, layer),
        compiled(costs) if fused else costs,
        dtype=dtype,
        scale=scale,
        slope_scale=scale if lift is None else lift,
        rest=None if lift is None else scale / lift,
        padding=_padding(layer),
        sample_weights=sample_weights,
        class_weights=_class_weights(layer, class_weights, costs.unknown_weight),
    )
    bias = to_slots(layer.bias, layer)
    if wanted:
        return cast(Tensor, GroupedLoss.apply(x, layer.weight, bias, task))
    with torch.no_grad():
        return walk(x, layer.weight, bias, task, (False, False, False))[0]


def _checked_options(kind: str, options: Mapping[str, Option] | None) -> dict[str, Option]:
    if kind == "softmax":
        raise ConfigError(
            f"kind must be one of {', '.join(COSTS)}, got 'softmax', which needs all logits of an image at once. "
            "Use mldecoder.losses.softmax_cross_entropy on the logits."
        )
    filled = all_options(kind, options)
    check_at_least_zero("unknown_weight", cast(float, filled["unknown_weight"]))
    check_reduction(str(filled["reduction"]))
    if filled["reduction"] == "none":
        raise ConfigError("reduction must be sum, mean or image_mean, got 'none', which would hold every cost.")
    return filled


def _check_targets(images: int, layer: GroupLinear, targets: SparseTargets | Tensor) -> None:
    if isinstance(targets, SparseTargets):
        shape: tuple[int, ...] = (len(targets), targets.num_classes)
    else:
        shape = tuple(targets.shape)
    if shape != (images, layer.num_classes):
        raise InputError(f"targets must be of {images} images and {layer.num_classes} classes, got {shape}.")
    if targets.device != layer.weight.device:
        raise InputError(f"targets must be on the layer's device {layer.weight.device}, got {targets.device}.")


def _cost(kind: str, filled: Mapping[str, Option], num_classes: int) -> AsymmetricCost | BinaryCost | FocalCost:
    values = {**filled, "num_classes": num_classes}
    return COSTS[kind](**{field.name: values[field.name] for field in fields(COSTS[kind])})  # type: ignore[arg-type]


def _target_blocks(targets: SparseTargets | Tensor, layer: GroupLinear) -> TargetBlocks:
    if isinstance(targets, SparseTargets):
        return sparse_blocks(targets, layer.slots)
    return dense_blocks(targets, layer.class_of_slot)


def _padding(layer: GroupLinear) -> Tensor | None:
    """Which slots belong to no class: ``(k * g,)``."""
    if layer.num_queries * layer.group_size == layer.num_classes:
        return None
    return layer.class_of_slot < 0


def _class_weights(layer: GroupLinear, weights: Tensor | None, unknown_weight: float) -> Tensor | None:
    """One weight a slot ``(k * g,)``, 0 for padding, which counts as unknown: that may cost something."""
    padded = layer.num_queries * layer.group_size > layer.num_classes
    if weights is None and padded and unknown_weight > 0:
        weights = torch.ones_like(layer.bias)
    return None if weights is None else to_slots(weights, layer)


def _scale(
    filled: Mapping[str, Option], targets: SparseTargets | Tensor, num_classes: int, dtype: torch.dtype
) -> Tensor:
    """What the reduction multiplies the sum of the costs with: ``()``, on the device of the targets."""
    if filled["reduction"] == "mean" and filled["unknown_weight"] == 0:
        return known_entries(targets).clamp(min=1).to(dtype).reciprocal()
    images = len(targets)
    divisor = {"sum": 1, "image_mean": images, "mean": images * num_classes}[str(filled["reduction"])]
    return torch.full((), 1 / max(1, divisor), dtype=dtype, device=targets.device)


def _can_fuse(x: Tensor) -> bool:
    return x.is_cuda and importlib.util.find_spec("triton") is not None


def _chunk(x: Tensor, layer: GroupLinear, targets: SparseTargets | Tensor, dtype: torch.dtype, fused: bool) -> int:
    """How many slots a block may have."""
    b, _, d = x.shape
    values = targets.values if isinstance(targets, SparseTargets) else targets
    if fused:
        each = 2 * dtype.itemsize + values.dtype.itemsize  # logits and slopes, and a target
    else:
        each = PLAIN_COPIES * torch.promote_types(dtype, torch.float32).itemsize
    copied = dtype.itemsize if dtype != layer.weight.dtype else 0
    moved = dtype.itemsize if dtype != x.dtype else 0
    return chunk_within(WORK_BYTES, layer, slot_bytes=b * each + d * copied, query_bytes=b * d * moved)
