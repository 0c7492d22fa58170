"""The parts of a decoder: attention, feed-forward, group fully-connected.

Shapes: b batch, t tokens, k queries, g classes a query, n classes, d width, h heads.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mldecoder.errors import ConfigError
from mldecoder.heads import fast
from mldecoder.heads.groups import Assignment, GroupLayout, assign, slots_of

__all__ = ["Attention", "DecoderLayer", "GroupLinear", "QuerySide"]


class QuerySide(NamedTuple):
    """What a layer makes of the queries before it looks at the picture."""

    normed: Tensor  # (1, k, d), or (b, k, d) when it differs between images
    projected: Tensor  # the same, through the query projection


class Attention(nn.Module):
    """Multi-head attention on PyTorch's fused kernels.

    The query projection is a layer of its own, so that it can be computed ahead of the images.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ConfigError(f"width must be a multiple of heads, got width={width} and heads={heads}.")
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        bound = math.sqrt(6 / (4 * width))  # one Xavier draw over the stacked q, k, v, as nn.MultiheadAttention does
        for layer in (self.query, self.key_value):
            nn.init.uniform_(layer.weight, -bound, bound)
            nn.init.zeros_(layer.bias)
        nn.init.zeros_(self.out.bias)

    def forward(
        self, query: Tensor, tokens: Tensor, *, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from projected queries ``(b, k, d)`` to tokens: ``(b, k, d)``, and weights ``(b, h, k, t)``."""
        key, value = self.key_value(tokens).chunk(2, dim=-1)
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (query, key, value))  # (b, h, ·, d/h)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = _attention_weights(q, k, mask)
            x = F.dropout(weights, dropout) @ v
        else:
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return self.out(x.transpose(1, 2).flatten(2)), weights


class DecoderLayer(nn.Module):
    """One layer of the paper's section 2.3: cross-attention and feed-forward.

    With ``self_attention=True`` it is the transformer-decoder layer of section 2.2. ML-Decoder puts the identity
    in its place, and keeps the residual and the norm around it: in evaluation the norm sees twice the query.
    """

    def __init__(self, width: int, ff_width: int, heads: int, dropout: float, *, self_attention: bool = False) -> None:
        super().__init__()
        self.self_attention = Attention(width, heads, dropout) if self_attention else None
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, ff_width)
        self.linear2 = nn.Linear(ff_width, width)
        self.norm3 = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def query_side(self, queries: Tensor) -> QuerySide:
        """Norm and project the queries ``(1 or b, k, d)``; no image is needed for that."""
        mixed = queries
        if self.self_attention is not None:
            mixed, _ = self.self_attention(self.self_attention.query(queries), queries)
        normed = self.norm1(queries + self.dropout(mixed))
        return QuerySide(normed, self.attention.query(normed))

    def forward(
        self,
        queries: Tensor,
        tokens: Tensor,
        *,
        side: QuerySide | None = None,
        mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Decode tokens ``(b, t, d)``: ``(b, k, d)``, and the attention weights ``(b, h, k, t)`` if asked.

        Args:
            queries: ``(1 or b, k, d)``.
            tokens: Embedded tokens.
            side: What :meth:`query_side` made of the queries, where that is the same for all images.
            mask: ``(b, 1, 1, t)``, true where a token may be looked at.
            need_weights: Whether to return the attention weights.
        """
        if not need_weights and fast.usable(tokens, tokens.shape[-1]) and self._untouched():
            return self._fast(queries, side, tokens, mask), None
        if side is None:
            side = self.query_side(queries.expand(tokens.shape[0], -1, -1))  # each image has its own dropout mask
        query = side.projected.expand(tokens.shape[0], -1, -1)  # a view: queries are not copied
        x, weights = self.attention(query, tokens, mask=mask, need_weights=need_weights)
        x = self.norm2(side.normed + self.dropout(x))
        hidden = self.dropout(F.relu(self.linear1(x)))
        return self.norm3(x + self.dropout(self.linear2(hidden))), weights

    def _untouched(self) -> bool:
        attention = self.attention
        linears = (attention.query, attention.key_value, attention.out, self.linear1, self.linear2)
        return fast.untouched(self.norm1, self.norm2, self.norm3, *linears)

    def _fast(self, queries: Tensor, side: QuerySide | None, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """The same in fewer passes over memory."""
        attention, dropout = self.attention, self.dropout.p if self.training else 0.0
        source = None
        if side is None and self.self_attention is None:
            *made, source = fast.query_side(self.norm1, attention.query, queries, len(tokens), dropout)
            side = QuerySide(*made)
        elif side is None:
            side = self.query_side(queries.expand(len(tokens), -1, -1))
        seen = fast.attend(
            side.projected, tokens, attention.key_value, heads=attention.heads, mask=mask, dropout=dropout
        )
        return fast.finish(
            side.normed, seen, attention.out, self.norm2, self.linear1, self.linear2, self.norm3, dropout, source
        )


class GroupLinear(nn.Module):
    """Give each query its own linear map to the logits of its group of classes.

    Args:
        num_classes: How many logits come out.
        num_queries: How many query vectors come in.
        width: Length of a query vector.
        groups: Which query owns which class; see :func:`mldecoder.heads.groups.assign`.
        layout: How large the groups are.
        seed: Seed of the random assignment.

    Example:
        >>> layer = GroupLinear(num_classes=10, num_queries=3, width=8)
        >>> layer(torch.zeros(2, 3, 8)).shape
        torch.Size([2, 10])
    """

    slots: Tensor
    class_of_slot: Tensor

    def __init__(
        self,
        num_classes: int,
        num_queries: int,
        width: int,
        *,
        groups: Assignment = "ordered",
        layout: GroupLayout = "balanced",
        seed: int = 0,
    ) -> None:
        super().__init__()
        slots, group_size = slots_of(assign(num_classes, num_queries, groups, layout=layout, seed=seed))
        self.num_classes = num_classes
        self.num_queries = num_queries
        self.group_size = group_size
        self.weight = nn.Parameter(torch.empty(num_queries, width, group_size))
        self.bias = nn.Parameter(torch.zeros(num_classes))
        self.register_buffer("slots", slots)  # saved: the assignment belongs to the weights
        self.register_buffer("class_of_slot", _inverse(slots, num_queries * group_size), persistent=False)
        self.in_order = _counts_up(slots)
        nn.init.xavier_normal_(self.weight)

    @property
    def query_of_class(self) -> Tensor:
        """The query that answers for each class: ``(n,)``."""
        return self.slots // self.group_size

    def forward(self, x: Tensor) -> Tensor:
        """Queries ``(b, k, d)`` to logits ``(b, n)``, in one batched product."""
        if fast.usable(x, x.shape[-1]) and not torch.compiler.is_compiling():
            return fast.group_linear(x, self.weight, self.bias, self.slots, self.class_of_slot)
        x = torch.einsum("bkd,kdg->bkg", x, self.weight).flatten(1)  # (b, k * g)
        x = x[:, : self.num_classes] if self.in_order else x.index_select(1, self.slots)
        return x + self.bias

    def extra_repr(self) -> str:
        """Sizes, for ``print(model)``."""
        width = self.weight.shape[1]
        return f"{width} -> {self.num_classes}, queries={self.num_queries}, group_size={self.group_size}"

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: object) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.class_of_slot = _inverse(self.slots, self.num_queries * self.group_size)
        self.in_order = _counts_up(self.slots)


def _inverse(slots: Tensor, count: int) -> Tensor:
    """The class that stands in each slot ``(k * g,)``; -1 where a slot is padding."""
    classes = torch.full((count,), -1, dtype=torch.long, device=slots.device)
    return classes.scatter(0, slots, torch.arange(len(slots), device=slots.device))


def _counts_up(slots: Tensor) -> bool:
    """Whether class c stands in slot c, so that no lookup is needed."""
    return slots.device.type != "meta" and torch.equal(slots, torch.arange(len(slots), device=slots.device))


def _attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1)
