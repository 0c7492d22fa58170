"""Walk through a group fully-connected layer block by block, so that only a part of its logits exists at a time.

Shapes: b batch, k queries, g columns a group, n classes, d width; a block has q queries and w columns of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mldecoder.errors import ConfigError, InputError
from mldecoder.heads.layers import GroupLinear

__all__ = ["Block", "blocks", "check_input", "chunk_within", "product_dtype", "to_slots"]


@dataclass(frozen=True)
class Block:
    """Some queries with all their columns, or one query with some of its columns."""

    queries: slice
    columns: slice
    slots: slice  # where both stand in the flattened (k * g,) slots

    @property
    def size(self) -> int:
        """How many slots it has: q * w."""
        return int(self.slots.stop - self.slots.start)


def blocks(layer: GroupLinear, chunk: int) -> Iterator[Block]:
    """Cut the ``(k, g)`` slots of a layer into blocks of at most ``chunk`` slots; they follow each other."""
    if chunk < 1:
        raise ConfigError(f"chunk must be at least 1 logit an image, got {chunk}. Leave it out for a good size.")
    k, g = layer.num_queries, layer.group_size
    if chunk < g:
        for query in range(k):
            for first in range(0, g, chunk):
                last = min(first + chunk, g)
                yield Block(slice(query, query + 1), slice(first, last), slice(query * g + first, query * g + last))
        return
    step = chunk // g
    for first in range(0, k, step):
        last = min(first + step, k)
        yield Block(slice(first, last), slice(0, g), slice(first * g, last * g))


def chunk_within(budget: int, layer: GroupLinear, *, slot_bytes: int, query_bytes: int) -> int:
    """How many slots a block may have when each slot and each query takes so many bytes."""
    queries = budget // max(1, layer.group_size * slot_bytes + query_bytes)  # an empty batch takes nothing
    if queries:
        return queries * layer.group_size
    return max(1, (budget - query_bytes) // slot_bytes)


def product_dtype(x: Tensor, weight: Tensor) -> torch.dtype:
    """The precision in which a product of the two is computed here and now, which autocast may have lowered."""
    device = x.device.type
    if torch.is_autocast_enabled(device) and torch.float64 not in (x.dtype, weight.dtype):
        return torch.get_autocast_dtype(device)
    if x.dtype != weight.dtype:
        raise InputError(
            f"x and the layer's weight must have one precision outside autocast, got {x.dtype} and {weight.dtype}. "
            "Convert one, or use torch.autocast."
        )
    return x.dtype


def to_slots(values: Tensor, layer: GroupLinear) -> Tensor:
    """Bring one value a class into the order of the slots, with 0 in the padding: ``(n,) -> (k * g,)``."""
    return values.new_zeros(layer.num_queries * layer.group_size).index_copy(0, layer.slots, values)


def check_input(x: Tensor, layer: GroupLinear) -> None:
    """Refuse anything but one vector a query."""
    k, d, _ = layer.weight.shape
    if x.ndim != 3 or x.shape[1:] != (k, d):
        raise InputError(
            f"x must have the shape (images, {k} queries, width {d}), got {tuple(x.shape)}. "
            "It is what the decoder gives, before the group fully-connected layer."
        )
