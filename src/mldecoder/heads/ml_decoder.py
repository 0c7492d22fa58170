"""ML-Decoder, the paper's section 2.3.

Fixed queries look at the picture's tokens (cross-attention), think about what they saw (feed-forward), and each
answers for its group of classes (group fully-connected). There is no attention among the queries, so the cost grows
with the number of queries K and hardly with the number of classes N.

Shapes: b batch, t tokens, k queries, n classes, d width.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from mldecoder.errors import ConfigError
from mldecoder.heads.decoder import Decoder, ReturnAttention, with_attention
from mldecoder.heads.groups import Assignment, GroupLayout, check_queries
from mldecoder.heads.layers import GroupLinear
from mldecoder.heads.memo import Memo

__all__ = ["MLDecoder", "Queries", "make_queries"]

Queries = Literal["fixed", "learnable"] | Tensor


class MLDecoder(nn.Module):
    """Attention head for any number of classes: features of a picture to one logit a class.

    Args:
        num_classes: How many classes are scored, N.
        in_features: Channels of the features that come in.
        num_queries: How many queries share the classes, K; ``None`` means min(100, N).
        width: Length of queries and embedded tokens, D.
        ff_width: Width inside the feed-forward layer.
        heads: Attention heads.
        depth: Decoder layers; the paper uses one.
        dropout: Dropout probability in training.
        queries: ``"fixed"`` random vectors, ``"learnable"`` ones, or a tensor ``(k, any width)``, such as word
            vectors; it is projected when its width differs from ``width``.
        groups: Which query owns which class: ``"random"`` (the paper's way), ``"ordered"``, or a tensor ``(n,)``
            with the query of each class.
        group_layout: ``"balanced"`` groups differ by at most one class; ``"ceil"`` is for converted files.
        seed: Seed of the fixed queries and of the random groups. Weights follow torch's own generator.
        checkpoint_layers: Save memory in training: the batch goes through the layers in slices, and the inside of
            a slice is computed again in the backward pass.

    Example:
        >>> head = MLDecoder(num_classes=80, in_features=2048)
        >>> head(torch.zeros(2, 2048, 7, 7)).shape
        torch.Size([2, 80])
    """

    queries: Tensor

    def __init__(
        self,
        num_classes: int,
        in_features: int,
        *,
        num_queries: int | None = None,
        width: int = 768,
        ff_width: int = 2048,
        heads: int = 8,
        depth: int = 1,
        dropout: float = 0.1,
        queries: Queries = "fixed",
        groups: Assignment = "random",
        group_layout: GroupLayout = "balanced",
        seed: int = 0,
        checkpoint_layers: bool = False,
    ) -> None:
        super().__init__()
        if num_queries is None:
            num_queries = len(queries) if isinstance(queries, Tensor) else min(100, num_classes)
        check_queries(num_queries, num_classes)
        self.num_classes = num_classes
        self.in_features = in_features
        self.num_queries = num_queries
        self.decoder = Decoder(
            in_features,
            width=width,
            ff_width=ff_width,
            heads=heads,
            depth=depth,
            dropout=dropout,
            checkpoint_layers=checkpoint_layers,
        )
        vectors = make_queries(queries, num_queries, width, seed)
        if isinstance(queries, str) and queries == "learnable":
            self.queries = nn.Parameter(vectors)
        else:
            self.register_buffer("queries", vectors)  # saved with the weights, never trained
        fits = vectors.shape[1] == width
        self.query_projection = None if fits else nn.Linear(vectors.shape[1], width)
        self.classify = GroupLinear(num_classes, num_queries, width, groups=groups, layout=group_layout, seed=seed)
        self._memo: Memo[Tensor] = Memo()

    def forward(
        self, x: Tensor, *, key_padding_mask: Tensor | None = None, return_attention: ReturnAttention = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Score every class: logits ``(b, n)``.

        Args:
            x: Features ``(b, c, h, w)``, ``(b, h, w, c)``, ``(b, c, f, h, w)`` or tokens ``(b, t, c)``.
            key_padding_mask: ``(b, t)``, true where a token is padding.
            return_attention: Return the last layer's attention over the tokens as well: ``True`` or ``"heads"`` for
                ``(b, h, k, t)``, ``"mean"`` for its average over the heads. ``classify.query_of_class`` says which
                query to look at for a class.
        """
        decoded, weights = self.decoder(
            x, self._widened(), key_padding_mask=key_padding_mask, need_weights=bool(return_attention)
        )
        return with_attention(self.classify(decoded), weights, return_attention)

    def decode(self, x: Tensor) -> Tensor:
        """What the queries saw, before classes are read off it by ``classify``: ``(b, k, d)``."""
        decoded: Tensor
        decoded, _ = self.decoder(x, self._widened())
        return decoded

    def _widened(self) -> Tensor:
        project = self.query_projection
        if project is None:
            return self.queries
        return self._memo(lambda: project(self.queries), [self.queries, *project.parameters()])


def make_queries(queries: Queries, num_queries: int, width: int, seed: int) -> Tensor:
    """The vectors that a head starts from: ``(k, width)``, or the given ones, checked."""
    if isinstance(queries, Tensor):
        if queries.ndim != 2 or len(queries) != num_queries:
            raise ConfigError(
                f"queries must be a tensor with one row per query, ({num_queries}, any width), "
                f"got shape {tuple(queries.shape)}."
            )
        return queries.detach().clone().float()
    if queries not in ("fixed", "learnable"):
        raise ConfigError(f'queries must be "fixed", "learnable" or a tensor (k, any width), got {queries!r}.')
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_queries, width, generator=generator, device="cpu")
