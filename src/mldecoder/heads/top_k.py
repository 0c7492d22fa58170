"""The best classes of each image without the logits of all: for heads of very many classes.

Shapes: b batch, k queries, g columns a group, n classes, d width; a block has q queries and w columns of each.
"""

import torch
from torch import Tensor

from mldecoder.errors import ConfigError
from mldecoder.heads.blocks import blocks, check_input, chunk_within, product_dtype, to_slots
from mldecoder.heads.layers import GroupLinear
from mldecoder.heads.ranking import first_of, in_order

__all__ = ["top_k"]

WORK_BYTES = 128 * 2**20
"""What the buffers of a block may take together."""
ENTRY_COPIES = 5  # values of a logit's size that a block holds at once, measured on the CPU: see tests


@torch.no_grad()
def top_k(x: Tensor, layer: GroupLinear, count: int, *, chunk: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest logits of each image and their classes: ``(b, k, d) -> (b, count), (b, count)``.

    Equal to ``layer(x).topk(count)``, but only a block of the logits exists at a time. The values come in falling
    order. Of classes with equal logits the lower number comes first and stays in, where ``torch.topk`` takes any; so
    the answer does not depend on blocks or processes. There are no gradients.

    Args:
        x: What the decoder gives, one vector a query.
        layer: The group fully-connected layer.
        count: How many classes an image.
        chunk: Logits an image that exist at a time; by default as many as fit into ``WORK_BYTES``.

    Example:
        >>> layer = GroupLinear(num_classes=1000, num_queries=10, width=8)
        >>> values, classes = top_k(torch.randn(2, 10, 8), layer, 5)
        >>> classes.shape
        torch.Size([2, 5])
    """
    check_input(x, layer)
    if not 1 <= count <= layer.num_classes:
        raise ConfigError(f"count must be between 1 and the {layer.num_classes} classes, got {count}.")
    dtype = product_dtype(x, layer.weight)
    bias, classes = to_slots(layer.bias, layer), layer.class_of_slot
    bias = bias.masked_fill(classes < 0, -torch.inf)  # padding never wins
    if chunk is None:
        chunk = _chunk(x, layer, dtype)
    values = x.new_empty(len(x), 0, dtype=torch.promote_types(dtype, bias.dtype))
    best = classes.new_empty(len(x), 0)
    with torch.autocast(x.device.type, enabled=False):
        for block in blocks(layer, chunk):
            part = x[:, block.queries].transpose(0, 1).to(dtype)
            logits = torch.bmm(part, layer.weight[block.queries, :, block.columns].to(dtype))  # (q, b, w)
            logits = logits.transpose(0, 1).flatten(1) + bias[block.slots]  # (b, q * w)
            found, owner = first_of(logits, classes[block.slots], min(count, block.size))
            values, best = torch.cat([values, found], dim=1), torch.cat([best, owner], dim=1)
            values, best = in_order(values, best, min(count, values.shape[1]))
    return values, best


def _chunk(x: Tensor, layer: GroupLinear, dtype: torch.dtype) -> int:
    b, _, d = x.shape
    copied = dtype.itemsize if dtype != layer.weight.dtype else 0
    moved = dtype.itemsize if dtype != x.dtype else 0
    each = b * ENTRY_COPIES * torch.promote_types(dtype, layer.bias.dtype).itemsize
    return chunk_within(WORK_BYTES, layer, slot_bytes=each + d * copied, query_bytes=b * d * moved)
