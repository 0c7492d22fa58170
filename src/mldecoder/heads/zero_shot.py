"""ML-Decoder with words for queries: it scores labels that were never trained.

Each label's text vector becomes a query, and one shared linear layer reads every answer, so that any number of
labels in any order can be scored at call time.

Shapes: b batch, n labels, d width, e text width.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from mldecoder.errors import ConfigError, InputError
from mldecoder.heads.decoder import Decoder, ReturnAttention, with_attention

__all__ = ["ZeroShotMLDecoder"]


class ZeroShotMLDecoder(nn.Module):
    """Attention head whose classes are given as text vectors with every call.

    Args:
        in_features: Channels of the features that come in.
        text_width: Length of a text vector.
        width: Length of queries and embedded tokens.
        ff_width: Width inside the feed-forward layer.
        heads: Attention heads.
        depth: Decoder layers.
        dropout: Dropout probability in training.
        checkpoint_layers: Save memory in training by computing the layers' inside again in the backward pass.

    Example:
        >>> head = ZeroShotMLDecoder(in_features=64, text_width=300, width=32)
        >>> head(torch.zeros(2, 64, 7, 7), torch.randn(5, 300)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        in_features: int,
        text_width: int,
        *,
        width: int = 768,
        ff_width: int = 2048,
        heads: int = 8,
        depth: int = 1,
        dropout: float = 0.1,
        checkpoint_layers: bool = False,
    ) -> None:
        super().__init__()
        if text_width < 1:
            raise ConfigError(f"text_width must be at least 1, got {text_width}.")
        self.in_features = in_features
        self.text_width = text_width
        self.query_projection = nn.Linear(text_width, width)
        self.decoder = Decoder(
            in_features,
            width=width,
            ff_width=ff_width,
            heads=heads,
            depth=depth,
            dropout=dropout,
            checkpoint_layers=checkpoint_layers,
        )
        self.classify = nn.Linear(width, 1)  # shared by all labels
        nn.init.xavier_normal_(self.classify.weight)
        nn.init.zeros_(self.classify.bias)

    def forward(
        self,
        x: Tensor,
        text_vectors: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        return_attention: ReturnAttention = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Score the labels of ``text_vectors`` ``(n, e)``: logits ``(b, n)``, in their order."""
        if text_vectors.ndim != 2 or text_vectors.shape[1] != self.text_width:
            raise InputError(
                f"text_vectors must be (labels, {self.text_width}), got {tuple(text_vectors.shape)}. "
                f"Use the text encoder that the head was trained with."
            )
        queries = F.relu(self.query_projection(text_vectors))
        decoded, weights = self.decoder(
            x, queries, key_padding_mask=key_padding_mask, need_weights=bool(return_attention)
        )
        return with_attention(self.classify(decoded).squeeze(-1), weights, return_attention)
