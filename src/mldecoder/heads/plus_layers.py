"""A decoder layer with other norms, other attention, or no feed-forward.

Shapes: b batch, t tokens, k queries, d width, h heads.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mldecoder.heads import fast
from mldecoder.heads.layers import Attention, DecoderLayer, QuerySide
from mldecoder.heads.plus_options import PlusOptions

__all__ = ["PlusAttention", "PlusLayer"]

FIRST_TEMPERATURE = 10.0  # cosines lie within one of each other; times this, softmax can choose


class PlusAttention(Attention):
    """Attention, where wished by angle and without projections of queries and keys."""

    def __init__(self, width: int, heads: int, dropout: float, *, qk_norm: bool, projections: bool) -> None:
        super().__init__(width, heads, dropout)
        self.projections = projections
        if not projections:
            self.query = nn.Identity()  # type: ignore[assignment]  # callers only call it
            self.key_value = nn.Linear(width, width)  # values alone; an embedded token is its own key
            nn.init.xavier_uniform_(self.key_value.weight)
            nn.init.zeros_(self.key_value.bias)
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), FIRST_TEMPERATURE)) if qk_norm else None

    def forward(
        self, query: Tensor, tokens: Tensor, *, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from projected queries ``(1 or b, k, d)`` to tokens: ``(b, k, d)``, and weights ``(b, h, k, t)``."""
        dropout = self.dropout if self.training else 0.0
        quick = fast.usable(tokens, tokens.shape[-1]) and fast.untouched(self.key_value)
        if quick and self._plain and not need_weights:
            seen = fast.attend(query, tokens, self.key_value, heads=self.heads, mask=mask, dropout=dropout)
            return self.out(seen), None
        key, value = self.key_value(tokens).chunk(2, dim=-1) if self.projections else (tokens, self.key_value(tokens))
        query = query.expand(tokens.shape[0], -1, -1)  # a view: queries are not copied
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (query, key, value))  # (b, h, ·, d/h)
        q, k = self._turned(q, k)
        q, k = q.to(v.dtype), k.to(v.dtype)  # a norm may have raised the precision
        if not need_weights:
            x, weights = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout), None
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(dim=-1)
            x = F.dropout(weights, dropout) @ v
        return self.out(x.transpose(1, 2).flatten(2)), weights

    @property
    def _plain(self) -> bool:
        return self.projections and self.temperature is None

    def _turned(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.temperature is None:
            return q, k
        undo = math.sqrt(q.shape[-1])  # attention divides by it
        return F.normalize(q, dim=-1, eps=1e-6) * (self.temperature * undo), F.normalize(k, dim=-1, eps=1e-6)


class PlusLayer(DecoderLayer):
    """One decoder layer; without any option it is the paper's, its fast way on GPUs included.

    Args:
        width: Length of queries and embedded tokens.
        ff_width: Width inside the feed-forward layer; 0 leaves it out.
        heads: Attention heads.
        dropout: Dropout probability in training.
        options: What is otherwise.
        last: Whether no layer follows; of pre-norm layers only the last norms its sum.
    """

    def __init__(
        self, width: int, ff_width: int, heads: int, dropout: float, *, options: PlusOptions, last: bool
    ) -> None:
        super().__init__(width, max(1, ff_width), heads, dropout)
        self.pre_norm = options.norm == "pre"
        self.feed_forward = ff_width > 0
        self.paper_layer = options.paper_layer and self.feed_forward
        if not self.paper_layer:
            self.attention = PlusAttention(
                width, heads, dropout, qk_norm=options.qk_norm, projections=options.projections
            )
        start = options.layer_scale
        self.scale1 = None if start is None else nn.Parameter(torch.full((width,), start))
        self.scale2 = None if start is None or not self.feed_forward else nn.Parameter(torch.full((width,), start))
        unused = [] if self.feed_forward else ["linear1", "linear2"]
        if not self.feed_forward:
            unused.append("norm2" if self.pre_norm else "norm3")
        if self.pre_norm and not last:
            unused.append("norm3")
        for name in unused:  # parameters without a gradient would stop training on several GPUs
            setattr(self, name, nn.Identity())

    def query_side(self, queries: Tensor) -> QuerySide:
        """What enters the sum, and the projected queries: ``(1 or b, k, d)`` each."""
        if not self.pre_norm:
            return super().query_side(queries)
        return QuerySide(queries, self.attention.query(self.norm1(queries)))

    def forward(
        self,
        queries: Tensor,
        tokens: Tensor,
        *,
        side: QuerySide | None = None,
        mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Decode tokens ``(b, t, d)``; the arguments are those of :class:`mldecoder.heads.layers.DecoderLayer`."""
        if self.paper_layer:
            return super().forward(queries, tokens, side=side, mask=mask, need_weights=need_weights)
        if side is None:  # post-norm: each image has its own dropout mask
            side = self.query_side(queries if self.pre_norm else queries.expand(tokens.shape[0], -1, -1))
        x, weights = self.attention(side.projected, tokens, mask=mask, need_weights=need_weights)
        x = side.normed + self._added(x, self.scale1)
        if not self.pre_norm:
            x = self.norm2(x)
        if self.feed_forward:
            hidden = F.relu(self.linear1(self.norm2(x) if self.pre_norm else x))
            x = x + self._added(self.linear2(self.dropout(hidden)), self.scale2)
        return self.norm3(x), weights

    def _added(self, x: Tensor, scale: Tensor | None) -> Tensor:
        added: Tensor = self.dropout(x if scale is None else x * scale)
        return added
