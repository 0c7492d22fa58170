"""Score a label that was never trained by the trained labels whose words are nearest to its own.

A word's vector says what it is like ("microwave" is like "oven"), and what it is like is what a model that never saw it
knows best. It is the idea of ConSE (Norouzi et al., arXiv:1312.5650), with logits in place of probabilities and without
training anything. Labels that were trained keep their score.

Shapes: b batch, n labels, m trained labels, k nearest of them, e text width.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mldecoder.heads.memo import Memo

__all__ = ["Neighbours", "nearest"]

COUNT = 8  # the nearest trained labels that have a say; the weights of further ones are tiny
SAME = 1 - 1e-6  # from this cosine on a label is one of the trained
BLOCK = 4096  # labels compared at a time


def nearest(vectors: Tensor, anchors: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """The trained labels nearest to each label: places and weights ``(n, k)``, and which labels are new ``(n,)``.

    Nearness is the cosine after the mean of the trained labels is taken out: what all labels of a dataset have in
    common says nothing. Weights are a softmax of it over ``temperature``.
    """
    # In float64, which autocast leaves alone: in half precision a word would not be found to be itself.
    mean = anchors.double().mean(dim=0)
    cosine = F.normalize(vectors.double() - mean, dim=1) @ F.normalize(anchors.double() - mean, dim=1).T  # (n, m)
    values, places = cosine.topk(min(COUNT, anchors.shape[0]), dim=1)
    return places, (values / temperature).softmax(dim=1), values[:, 0] < SAME


class Neighbours(nn.Module):
    """Mixes the scores of new labels with those of the trained labels nearest to them.

    Args:
        anchors: Text vectors of the trained labels ``(m, e)``; saved with the model.
        share: How much of a new label's score is its neighbours'.
        temperature: Small values let the nearest ones alone decide.
    """

    anchors: Tensor

    def __init__(self, anchors: Tensor, *, share: float, temperature: float) -> None:
        super().__init__()
        self.register_buffer("anchors", anchors)
        self.share, self.temperature = share, temperature
        self._memo: Memo[tuple[Tensor, Tensor, Tensor]] = Memo()

    def forward(self, own: Tensor, vectors: Tensor, theirs: Tensor) -> Tensor:
        """Mix own logits ``(b, n)`` of labels ``(n, e)`` with the trained labels' ``(b, m)``: ``(b, n)``."""
        places, weights, new = self._memo(lambda: self._nearest(vectors), [vectors, self.anchors])
        mixed = (1 - self.share) * own
        for place, weight in zip(places.unbind(1), weights.unbind(1), strict=True):
            mixed = mixed + (self.share * weight).to(own) * theirs.index_select(1, place)
        return torch.where(new, mixed, own)

    def _nearest(self, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if torch.compiler.is_compiling() or torch.compiler.is_exporting() or len(vectors) <= BLOCK:
            return nearest(vectors, self.anchors, self.temperature)
        parts = [nearest(part, self.anchors, self.temperature) for part in torch.split(vectors, BLOCK)]
        places, weights, new = (torch.cat(part) for part in zip(*parts, strict=True))
        return places, weights, new

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:  # noqa: ANN401
        saved = state_dict.get(prefix + "anchors")
        if saved is not None and saved.shape != self.anchors.shape:  # how many there are stands in the file alone
            self.anchors = self.anchors.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
