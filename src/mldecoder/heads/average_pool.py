"""Global average pooling, the head to beat."""

from torch import Tensor, nn

from mldecoder.errors import ConfigError, InputError
from mldecoder.heads.groups import check_queries
from mldecoder.heads.tokens import padding_mask, to_tokens

__all__ = ["GlobalAveragePool"]


class GlobalAveragePool(nn.Module):
    """Average the tokens, then one linear layer.

    Args:
        num_classes: How many classes are scored.
        in_features: Channels of the features that come in.
        dropout: Dropout probability before the linear layer, in training.

    Example:
        >>> GlobalAveragePool(num_classes=80, in_features=64)(torch.zeros(2, 64, 7, 7)).shape
        torch.Size([2, 80])
    """

    def __init__(self, num_classes: int, in_features: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_queries(1, num_classes)
        if in_features < 1:
            raise ConfigError(f"in_features must be at least 1, got {in_features}.")
        self.num_classes = num_classes
        self.in_features = in_features
        self.dropout = nn.Dropout(dropout)
        self.classify = nn.Linear(in_features, num_classes)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, return_attention: bool = False) -> Tensor:
        """Score every class: features of any layout to logits ``(b, n)``."""
        if return_attention:
            raise InputError("Average pooling looks everywhere alike and has no attention to return. Use MLDecoder.")
        tokens = to_tokens(x, self.in_features)
        mask = padding_mask(key_padding_mask, tokens)
        if mask is None:
            pooled = tokens.mean(dim=1)
        else:
            weight = mask.flatten(1).to(tokens.dtype)
            weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1)
            pooled = (tokens * weight.unsqueeze(2)).sum(dim=1)
        logits: Tensor = self.classify(self.dropout(pooled))
        return logits
