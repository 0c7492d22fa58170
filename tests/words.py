"""A text encoder for tests: every word has its own fixed random vector, a text the mean of its words'."""

from collections.abc import Sequence
from zlib import crc32

import torch
from torch import Tensor

__all__ = ["WIDTH", "spell"]

WIDTH = 8


def spell(texts: Sequence[str]) -> Tensor:
    """Texts to vectors ``(n, WIDTH)``."""
    return torch.stack([torch.stack([_word(word) for word in text.split()]).mean(dim=0) for text in texts])


def _word(word: str) -> Tensor:
    return torch.randn(WIDTH, generator=torch.Generator().manual_seed(crc32(word.encode())))
