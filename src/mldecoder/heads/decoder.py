"""The decoder that every attention head shares: embed the tokens, let the queries look at them.

Shapes: b batch, t tokens, k queries, d width, h heads.
"""

from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mldecoder.errors import ConfigError
from mldecoder.heads import fast
from mldecoder.heads.layers import DecoderLayer, QuerySide
from mldecoder.heads.memo import Memo
from mldecoder.heads.tokens import padding_mask, to_tokens

__all__ = ["Decoder", "ReturnAttention", "with_attention"]

SLICES, LEAST_IMAGES = 4, 16  # of a batch whose layers are computed again; slices of fewer images are slow

ReturnAttention = bool | Literal["heads", "mean"]


class Decoder(nn.Module):
    """Layers of cross-attention from queries to the embedded tokens of a picture.

    Args:
        in_features: Channels of the backbone's features.
        width: Length of queries and embedded tokens, the paper's D.
        ff_width: Width inside the feed-forward layer.
        heads: Attention heads.
        depth: Layers; the paper uses one.
        dropout: Dropout probability in training.
        self_attention: Let the queries look at each other first, as a transformer-decoder does.
        checkpoint_layers: Save memory in training: the batch goes through the layers in slices, and the inside of
            a slice is computed again in the backward pass.
    """

    def __init__(
        self,
        in_features: int,
        *,
        width: int,
        ff_width: int,
        heads: int,
        depth: int,
        dropout: float,
        self_attention: bool = False,
        checkpoint_layers: bool = False,
    ) -> None:
        super().__init__()
        for name, value in {
            "in_features": in_features,
            "width": width,
            "ff_width": ff_width,
            "depth": depth,
        }.items():
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}.")
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout must be at least 0 and below 1, got {dropout}.")
        self.in_features = in_features
        self.checkpoint_layers = checkpoint_layers
        self.embed = nn.Linear(in_features, width)
        self.layers = nn.ModuleList(
            DecoderLayer(width, ff_width, heads, dropout, self_attention=self_attention) for _ in range(depth)
        )
        self._memo: Memo[QuerySide] = Memo()

    def forward(
        self,
        x: Tensor,
        queries: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Decode features of any layout: ``(b, k, d)``, and the last layer's attention ``(b, h, k, t)`` if asked.

        Args:
            x: Features; see :func:`mldecoder.heads.tokens.to_tokens`.
            queries: ``(k, d)``, the same for every image.
            key_padding_mask: ``(b, t)``, true where a token is padding.
            need_weights: Whether to return the attention weights, which keeps the fused kernel from being used.
        """
        tokens = to_tokens(x, self.in_features)
        mask = padding_mask(key_padding_mask, tokens)
        width = self.embed.out_features
        quick = fast.usable(tokens, width) and fast.untouched(self.embed)
        tokens = fast.embed(self.embed, tokens) if quick else F.relu(self.embed(tokens))
        side = self._shared_side(queries)
        if not (self.checkpoint_layers and torch.is_grad_enabled()):
            return self._decode(queries, tokens, side, mask, need_weights)
        slices = min(SLICES, max(len(tokens) // LEAST_IMAGES, 1))
        masks = [None] * slices if mask is None else mask.chunk(slices)
        parts: list[tuple[Tensor, Tensor | None]] = [
            checkpoint(self._decode, queries, part, side, part_mask, need_weights, use_reentrant=False)
            for part, part_mask in zip(tokens.chunk(slices), masks, strict=False)
        ]
        seen = [weights for _, weights in parts if weights is not None]
        return torch.cat([decoded for decoded, _ in parts]), torch.cat(seen) if seen else None

    def _decode(
        self, queries: Tensor, tokens: Tensor, side: QuerySide | None, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        decoded, weights = queries.unsqueeze(0), None
        for layer in cast("list[DecoderLayer]", list(self.layers)):
            decoded, weights = layer(decoded, tokens, side=side, mask=mask, need_weights=need_weights)
            side = None  # from here on the queries are each image's own
        return decoded, weights

    def train(self, mode: bool = True) -> "Decoder":
        """Switch between training and evaluation; either way the query side is computed anew."""
        self._memo.clear()
        return super().train(mode)

    @property
    def first_layer(self) -> DecoderLayer:
        """The layer that sees the queries."""
        return cast("DecoderLayer", self.layers[0])

    def _shared_side(self, queries: Tensor) -> QuerySide | None:
        """The first layer's query side: no image enters it, so evaluation computes it once and keeps it.

        With dropout each image has its own, and the layer makes it.
        """
        layer = self.first_layer
        if self.training and layer.dropout.p > 0:
            return None
        own = [*layer.norm1.parameters(), *layer.attention.query.parameters()]
        if layer.self_attention is not None:
            own += layer.self_attention.parameters()
        return self._memo(lambda: layer.query_side(queries.unsqueeze(0)), [queries, *own])


def with_attention(logits: Tensor, weights: Tensor | None, wish: ReturnAttention) -> Tensor | tuple[Tensor, Tensor]:
    """Join logits with what the caller wants to see of the attention weights ``(b, h, k, t)``."""
    if weights is None:
        return logits
    if wish == "mean":
        return logits, weights.mean(dim=1)
    if wish is True or wish == "heads":
        return logits, weights
    raise ConfigError(f'return_attention must be False, True, "heads" or "mean", got {wish!r}.')
