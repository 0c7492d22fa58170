"""What may happen to tokens before they are embedded, and the branch that reads them without queries.

Shapes: b batch, t tokens, c channels, h and w map size, n classes.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from mldecoder.errors import InputError

__all__ = ["Positions", "TokenBranch", "drop_tokens", "map_size"]

WAVES = 8  # wavelengths a side, from two pictures long to a 64th of one
FIRST_STRENGTH = 0.1  # features of a trained backbone are about 1


class Positions(nn.Module):
    """Where each token of a map stands, as a vector of its channels: ``(t, c)``.

    Rows and columns are read as sine and cosine waves over the picture's height and width, so that maps of any size
    are understood. ``"learnt"`` mixes the waves by a linear layer that starts at zero; ``"sine"`` by fixed random
    signs, with one learnt strength.
    """

    mixing: Tensor

    def __init__(self, kind: Literal["learnt", "sine"], channels: int, *, seed: int = 0) -> None:
        super().__init__()
        self.learnt = kind == "learnt"
        if self.learnt:
            self.mixing = nn.Parameter(torch.zeros(channels, 4 * WAVES))
            return
        generator = torch.Generator().manual_seed(seed)
        signs = torch.randint(0, 2, (channels, 4 * WAVES), generator=generator).float() * 2 - 1
        self.register_buffer("mixing", signs / math.sqrt(2 * WAVES))  # each channel then has a variance of one
        self.strength = nn.Parameter(torch.tensor(FIRST_STRENGTH))

    def forward(self, height: int, width: int) -> Tensor:
        """The vectors of a map of this size, row by row."""
        rows, columns = self._waves(height), self._waves(width)  # (h, 2 WAVES), (w, 2 WAVES)
        both = torch.cat(
            [rows.unsqueeze(1).expand(-1, width, -1), columns.unsqueeze(0).expand(height, -1, -1)], dim=-1
        ).flatten(0, 1)
        places = both.to(self.mixing.dtype) @ self.mixing.T
        return places if self.learnt else places * self.strength

    def _waves(self, count: int) -> Tensor:
        place = (torch.arange(count, device=self.mixing.device, dtype=torch.float32) + 0.5) / count
        angles = place.unsqueeze(1) * (math.pi * 2.0 ** torch.arange(WAVES, device=place.device))
        return torch.cat([angles.sin(), angles.cos()], dim=1)


class TokenBranch(nn.Module):
    """Logits read off the tokens by one linear layer that starts at zero: ``(b, t, c) -> (b, n)``.

    The mean over the tokens is global average pooling. The maximum is taken class by class over the tokens' logits, as
    in class-specific residual attention (arXiv:2108.02456).
    """

    def __init__(self, num_classes: int, in_features: int, *, mean: bool, most: bool, dropout: float) -> None:
        super().__init__()
        self.mean, self.most = mean, most
        self.dropout = nn.Dropout(dropout)
        self.classify = nn.Linear(in_features, num_classes)
        nn.init.zeros_(self.classify.weight)
        nn.init.zeros_(self.classify.bias)

    def forward(self, tokens: Tensor, attend: Tensor | None = None) -> Tensor:
        """Score every class; ``attend`` ``(b, t)`` is true where a token is no padding."""
        if not self.most:
            return self._of(self._averaged(tokens, attend))
        each = self._of(tokens)  # (b, t, n)
        most = each if attend is None else each.masked_fill(~attend.unsqueeze(2), -torch.inf)
        logits = most.amax(dim=1)
        return (logits + self._averaged(each, attend)) / 2 if self.mean else logits

    def _of(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classify(self.dropout(x))
        return logits

    def _averaged(self, x: Tensor, attend: Tensor | None) -> Tensor:
        if attend is None:
            return x.mean(dim=1)
        weight = attend.to(x.dtype)
        weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1)
        return (x * weight.unsqueeze(2)).sum(dim=1)


def drop_tokens(tokens: Tensor, padding: Tensor | None, share: float) -> tuple[Tensor, Tensor | None]:
    """Leave out a share of each picture's tokens, and their entries of ``padding`` ``(b, t)``, padding first."""
    b, t, c = tokens.shape
    kept = max(1, round(t * (1 - share)))
    chance = torch.rand(b, t, device=tokens.device)
    if padding is not None:
        chance = chance.masked_fill(padding, -1.0)
    keep = chance.topk(kept, dim=1).indices
    tokens = tokens.gather(1, keep.unsqueeze(2).expand(-1, -1, c))
    return tokens, None if padding is None else padding.gather(1, keep)


def map_size(x: Tensor, in_features: int) -> tuple[int, int]:
    """Rows and columns of a map ``(b, c, h, w)`` or ``(b, h, w, c)``."""
    if x.ndim != 4:
        raise InputError(
            f"positions are for maps (b, {in_features}, h, w), got features of shape {tuple(x.shape)}. "
            f"Set positions=none: backbones that yield tokens have positions of their own."
        )
    return (x.shape[2], x.shape[3]) if x.shape[1] == in_features else (x.shape[1], x.shape[2])
