"""The targets of one block of a group fully-connected layer, from lists or from dense rows.

Shapes: b images, n classes, k queries, g columns a group, e listed entries; a block has s slots.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mldecoder.heads.blocks import Block
from mldecoder.losses.sparse_targets import SparseTargets

__all__ = ["TargetBlocks", "dense_blocks", "known_entries", "sparse_blocks"]

TargetBlocks = Callable[[Block], Tensor]


def sparse_blocks(targets: SparseTargets, slots: Tensor) -> TargetBlocks:
    """Return a function from a block to its targets ``(s, b)``; ``slots`` (n,) is where each class stands.

    Every block looks at all e entries and sends those of other blocks to a spare cell behind its end. To cut the
    entries into one list a block would take sizes that only the device knows, and the host would wait for them at
    every step; the entries of a batch are few beside its logits, so looking at all costs less.
    """
    b = len(targets)
    place = slots.index_select(0, targets.columns) * b + targets.rows  # (e,), in all (k * g, b) cells

    def block_of(block: Block) -> Tensor:
        size = block.size * b
        local = place - block.slots.start * b
        local = local.where((local >= 0) & (local < size), size)
        cells = torch.full((size + 1,), targets.default, dtype=targets.values.dtype, device=place.device)
        return cells.scatter_(0, local, targets.values)[:size].view(block.size, b)

    return block_of


def dense_blocks(targets: Tensor, class_of_slot: Tensor) -> TargetBlocks:
    """Return a function from a block to its targets ``(s, b)``; padding gets any class's."""
    signed = targets if targets.dtype.is_signed else targets.to(torch.int8)
    classes = class_of_slot.clamp(min=0)

    def block_of(block: Block) -> Tensor:
        return signed.t().index_select(0, classes[block.slots])

    return block_of


def known_entries(targets: SparseTargets | Tensor) -> Tensor:
    """Count the entries that are not unknown: ``()``."""
    if isinstance(targets, Tensor):
        nothing = torch.zeros((), dtype=torch.long, device=targets.device)
        return sum(((row >= 0).sum() for row in targets), start=nothing)  # row by row: a mask would be (b, n)
    listed = (targets.values >= 0).sum()
    return listed if targets.default < 0 else listed + len(targets) * targets.num_classes - len(targets.values)
