"""The transformer-decoder head of the paper's section 2.2, the baseline that ML-Decoder makes cheap.

One learnable query a class, self-attention among the queries: the cost grows with the square of the classes.
"""

from typing import Literal

from torch import Tensor, nn

from mldecoder.heads.decoder import Decoder, ReturnAttention, with_attention
from mldecoder.heads.groups import check_queries
from mldecoder.heads.layers import GroupLinear
from mldecoder.heads.ml_decoder import make_queries

__all__ = ["TransformerDecoder"]


class TransformerDecoder(nn.Module):
    """Transformer-decoder head: one query a class, with self-attention.

    Args:
        num_classes: How many classes are scored.
        in_features: Channels of the features that come in.
        width: Length of queries and embedded tokens.
        ff_width: Width inside the feed-forward layer.
        heads: Attention heads.
        depth: Decoder layers.
        dropout: Dropout probability in training.
        queries: ``"learnable"`` or ``"fixed"`` random vectors.
        seed: Seed of the queries.
        checkpoint_layers: Save memory in training: the batch goes through the layers in slices, and the inside of
            a slice is computed again in the backward pass.

    Example:
        >>> TransformerDecoder(num_classes=20, in_features=64, width=32)(torch.zeros(2, 64, 7, 7)).shape
        torch.Size([2, 20])
    """

    queries: Tensor

    def __init__(
        self,
        num_classes: int,
        in_features: int,
        *,
        width: int = 768,
        ff_width: int = 2048,
        heads: int = 8,
        depth: int = 1,
        dropout: float = 0.1,
        queries: Literal["learnable", "fixed"] = "learnable",
        seed: int = 0,
        checkpoint_layers: bool = False,
    ) -> None:
        super().__init__()
        check_queries(num_classes, num_classes)
        self.num_classes = num_classes
        self.in_features = in_features
        self.decoder = Decoder(
            in_features,
            width=width,
            ff_width=ff_width,
            heads=heads,
            depth=depth,
            dropout=dropout,
            self_attention=True,
            checkpoint_layers=checkpoint_layers,
        )
        vectors = make_queries(queries, num_classes, width, seed)
        if queries == "learnable":
            self.queries = nn.Parameter(vectors)
        else:
            self.register_buffer("queries", vectors)
        self.classify = GroupLinear(num_classes, num_classes, width)

    def forward(
        self, x: Tensor, *, key_padding_mask: Tensor | None = None, return_attention: ReturnAttention = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Score every class: logits ``(b, n)``; the arguments are those of :meth:`MLDecoder.forward`."""
        decoded, weights = self.decoder(
            x, self.queries, key_padding_mask=key_padding_mask, need_weights=bool(return_attention)
        )
        return with_attention(self.classify(decoded), weights, return_attention)
