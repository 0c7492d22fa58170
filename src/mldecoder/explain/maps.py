"""Where a head looked, as a map over the picture's grid of tokens.

An attention head says so itself: the map of a label is the attention of the query that answers for it. Average pooling
looks everywhere alike; there the map shows what each place added to the label's logit, which is exact because the
head is linear.

Shapes: b batch, h attention heads, q queries, t tokens, r and c rows and columns of the grid, n labels.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mldecoder.errors import ConfigError
from mldecoder.heads import GlobalAveragePool, MLDecoder, TransformerDecoder, ZeroShotMLDecoder
from mldecoder.heads.tokens import to_tokens
from mldecoder.model import Classifier

__all__ = ["Kind", "Maps", "look"]

Kind = Literal["attention", "contribution"]


@dataclass(frozen=True)
class Maps:
    """Logits ``(b, n)``, and a map for every query and attention head ``(b, q, h, r, c)``.

    ``query_of_label`` ``(n,)`` says which query answers for a label. With ``kind="contribution"`` there is one query a
    label and one "head".
    """

    logits: Tensor
    maps: Tensor
    query_of_label: Tensor
    kind: Kind

    def of(self, picture: int, label: int) -> Tensor:
        """The map of each attention head for a label: ``(h, r, c)``."""
        return self.maps[picture, self.query_of_label[label]]

    def shared_by(self, label: int) -> list[int]:
        """The labels that have the same map, the label itself among them."""
        return torch.nonzero(self.query_of_label == self.query_of_label[label]).flatten().tolist()


def look(model: Classifier, images: Tensor, text_vectors: Tensor | None = None) -> Maps:
    """Run a model and keep where it looked.

    Args:
        model: With any head of this package.
        images: Preprocessed pictures ``(b, 3, height, width)``.
        text_vectors: Words for a zero-shot model; ``None`` takes its own labels.
    """
    grid = model.backbone.token_grid(images.shape[-2], images.shape[-1])
    if grid is None:
        raise ConfigError(
            f"The tokens of {model.backbone.name} lie on no single grid over the picture, so there is no map to draw. "
            f"Use another backbone."
        )
    features, head = model.backbone(images), model.head
    kind: Kind = "attention"
    if isinstance(head, ZeroShotMLDecoder):
        vectors = model.text_vectors_for(model.labels) if text_vectors is None else text_vectors
        logits, weights = head(features, vectors, return_attention="heads")
        logits = model.with_neighbours(logits, features, vectors)
        query = torch.arange(logits.shape[1]) // head.group_size
    elif isinstance(head, MLDecoder | TransformerDecoder):
        logits, weights = head(features, return_attention="heads")
        query = head.classify.query_of_class.cpu()
    elif isinstance(head, GlobalAveragePool):
        kind = "contribution"
        logits, weights = _contributions(head, features)
        query = torch.arange(logits.shape[1])
    else:
        raise ConfigError(f"Maps are for the heads of this package, got {type(head).__name__}.")
    weights = weights.float().transpose(1, 2)  # (b, q, h, t)
    weights = weights[..., weights.shape[-1] - grid[0] * grid[1] :]  # class and register tokens come first
    return Maps(logits, weights.unflatten(-1, grid), query, kind)


def _contributions(head: GlobalAveragePool, features: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, and what each token adds to them ``(b, 1, n, t)``: their sum and the bias are the logit."""
    tokens = to_tokens(features, head.in_features)
    each = tokens @ head.classify.weight.T / tokens.shape[1]  # (b, t, n)
    return head(features), each.transpose(1, 2).unsqueeze(1)
