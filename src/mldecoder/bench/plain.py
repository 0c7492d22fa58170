"""ML-Decoder as the paper writes it down: the slow baseline of the tables, and an oracle for the fast head.

The queries are repeated for each image, the attention weights stand in memory, dropout is an operation of its own, and
the group fully-connected layer is the loop of the paper's appendix "Group Fully-connected Pseudo Code".

Shapes: b batch, t tokens, k queries, g classes a query, n classes, d width, h heads.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

from mldecoder.heads import MLDecoder
from mldecoder.heads.layers import Attention, DecoderLayer

__all__ = ["PlainMLDecoder"]


class PlainAttention(nn.Module):
    """Multi-head attention with one projection each for queries, keys and values."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Tensor, tokens: Tensor) -> Tensor:
        """Queries ``(b, k, d)`` look at tokens ``(b, t, d)``: ``(b, k, d)``."""
        q, k, v = self._split(self.query(queries)), self._split(self.key(tokens)), self._split(self.value(tokens))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (b, h, k, t)
        weights = self.dropout(scores.softmax(dim=-1))
        answers = (weights @ v).transpose(1, 2).flatten(2)  # (b, k, d)
        projected: Tensor = self.out(answers)
        return projected

    def _split(self, x: Tensor) -> Tensor:
        b, length, _ = x.shape
        return x.reshape(b, length, self.heads, -1).transpose(1, 2)  # (b, h, ·, d/h)


class PlainLayer(nn.Module):
    """Cross-attention and feed-forward, each with dropout, residual and norm; the identity for self-attention."""

    def __init__(self, width: int, ff_width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = PlainAttention(width, heads, dropout)
        self.linear1 = nn.Linear(width, ff_width)
        self.linear2 = nn.Linear(ff_width, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.dropout1, self.dropout2, self.dropout3, self.dropout4 = (nn.Dropout(dropout) for _ in range(4))

    def forward(self, queries: Tensor, tokens: Tensor) -> Tensor:
        """Queries ``(b, k, d)`` and tokens ``(b, t, d)`` to ``(b, k, d)``."""
        x = self.norm1(queries + self.dropout1(queries))
        x = self.norm2(x + self.dropout2(self.attention(x, tokens)))
        hidden = self.dropout3(torch.relu(self.linear1(x)))
        decoded: Tensor = self.norm3(x + self.dropout4(self.linear2(hidden)))
        return decoded


class PlainMLDecoder(nn.Module):
    """ML-Decoder without anything that makes it fast.

    Args:
        num_classes: How many classes are scored, N.
        in_features: Channels of the features that come in.
        num_queries: How many queries share the classes, K; None means min(100, N).
        width: Length of queries and embedded tokens, D.
        ff_width: Width inside the feed-forward layer.
        heads: Attention heads.
        depth: Decoder layers; the paper uses one.
        dropout: Dropout probability in training.

    Example:
        >>> PlainMLDecoder(num_classes=80, in_features=64, width=32)(torch.zeros(2, 64, 7, 7)).shape
        torch.Size([2, 80])
    """

    queries: Tensor
    slots: Tensor | None

    def __init__(
        self,
        num_classes: int,
        in_features: int,
        num_queries: int | None = None,
        *,
        width: int = 768,
        ff_width: int = 2048,
        heads: int = 8,
        depth: int = 1,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        k = num_queries or min(100, num_classes)
        self.num_classes = num_classes
        self.embed = nn.Linear(in_features, width)
        self.register_buffer("queries", torch.randn(k, width))
        self.layers = nn.ModuleList(PlainLayer(width, ff_width, heads, dropout) for _ in range(depth))
        self.group_weights = nn.Parameter(torch.empty(k, width, -(-num_classes // k)))
        self.bias = nn.Parameter(torch.zeros(num_classes))
        self.register_buffer("slots", None)  # class i is output i, unless weights of another order are copied in
        nn.init.xavier_normal_(self.group_weights)

    @classmethod
    @torch.no_grad()
    def from_head(cls, head: MLDecoder) -> "PlainMLDecoder":
        """A plain head with the weights of a fast one, on its device and of its type."""
        decoder, first = head.decoder, head.decoder.first_layer
        plain = cls(
            head.num_classes,
            head.in_features,
            head.num_queries,
            width=decoder.embed.out_features,
            ff_width=first.linear1.out_features,
            heads=first.attention.heads,
            depth=len(decoder.layers),
            dropout=first.dropout.p,
        ).to(head.classify.weight)
        queries = head.queries if head.query_projection is None else head.query_projection(head.queries)
        plain.queries = queries.detach().clone()
        plain.embed.load_state_dict(decoder.embed.state_dict())
        for ours, theirs in zip(plain.layers, decoder.layers, strict=True):
            _copy_layer(cast("PlainLayer", ours), cast("DecoderLayer", theirs))
        plain.group_weights = nn.Parameter(head.classify.weight.detach().clone())
        plain.bias.copy_(head.classify.bias)
        plain.slots = head.classify.slots.clone()
        return plain.train(head.training)

    def forward(self, x: Tensor) -> Tensor:
        """Features ``(b, c, h, w)`` or tokens ``(b, t, c)`` to logits ``(b, n)``."""
        if x.ndim == 4:
            x = x.flatten(2).transpose(1, 2)
        tokens = torch.relu(self.embed(x))
        queries = self.queries.expand(len(tokens), -1, -1)
        for layer in self.layers:
            queries = layer(queries, tokens)
        return self._group_fully_connected(queries)

    def _group_fully_connected(self, queries: Tensor) -> Tensor:
        k, _, g = self.group_weights.shape
        output = queries.new_zeros(len(queries), k, g)
        for i in range(k):
            output[:, i, :] = queries[:, i, :] @ self.group_weights[i]
        logits = output.flatten(1)
        logits = logits[:, : self.num_classes] if self.slots is None else logits[:, self.slots]
        return logits + self.bias


def _copy_layer(ours: PlainLayer, theirs: DecoderLayer) -> None:
    for name in ("linear1", "linear2", "norm1", "norm2", "norm3"):
        ours.get_submodule(name).load_state_dict(theirs.get_submodule(name).state_dict())
    _copy_attention(ours.attention, theirs.attention)


def _copy_attention(ours: PlainAttention, theirs: Attention) -> None:
    ours.query.load_state_dict(theirs.query.state_dict())
    ours.out.load_state_dict(theirs.out.state_dict())
    for layer, weight, bias in zip(
        (ours.key, ours.value), theirs.key_value.weight.chunk(2), theirs.key_value.bias.chunk(2), strict=True
    ):
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
