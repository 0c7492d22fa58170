"""Figures of a zero-shot model: over the seen labels, the unseen ones (ZSL), and all together (GZSL).

Shapes: n pictures, k labels, s seen and u unseen ones of them.
"""

import math

import torch
from torch import Tensor, nn

from mldecoder.heads import ZeroShotMLDecoder
from mldecoder.metrics import MultiLabelMetrics
from mldecoder.model import Classifier

__all__ = ["AT", "ByLists", "by_lists", "word_figures"]

AT = (3, 5)
"""The Ks of P@K, R@K and F1@K that the literature reports."""


class ByLists(nn.Module):
    """Scores all labels, the seen ones and the unseen ones, each list by itself: ``(n, k + s + u)``.

    Groups are formed over the list that is scored, so the three differ; the backbone runs once.
    """

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Pictures to logits of the three lists, one behind the other."""
        model = self.model
        features = model.backbone(images)
        lists = (model.labels, model.seen, model.unseen)
        return torch.cat([model.score(features, model.text_vectors_for(labels)) for labels in lists], dim=1)


def by_lists(model: Classifier) -> nn.Module:
    """What to score: the model itself, or, where a label's score depends on its company, each list by itself."""
    head = model.head
    grouped = isinstance(head, ZeroShotMLDecoder) and head.group_size > 1 and model.config.task == "multi-label"
    return ByLists(model) if grouped and model.seen and model.unseen else model


def word_figures(model: Classifier, logits: Tensor, targets: Tensor, threshold: float) -> dict[str, float]:
    """The figures of a zero-shot model in percent; logits as :func:`by_lists` gives them, targets ``(n, k)``.

    Without a prefix they are over all labels, seen and unseen together (GZSL); ``unseen_`` is over the unseen labels
    alone (ZSL), ``seen_`` over the seen ones.

    Precision, recall and F1 at K are those of the literature on NUS-WIDE: every picture is given its K best labels of
    the list. With hits the number of given labels that are right, over all pictures together,

        P@K = hits / (K x pictures),  R@K = hits / positives,  F1@K = 2 P R / (P + R).

    Pictures without a positive label of the list count too: K labels are given to them, none is right. Labels that are
    unknown for a picture are not given to it, and a picture with fewer than K known labels is given those.
    """
    k = len(model.labels)
    result = _figures(model.labels, logits[:, :k], targets, threshold)
    if not model.seen or not model.unseen:
        return result
    behind = k
    for prefix, names in (("seen_", model.seen), ("unseen_", model.unseen)):
        place = {label: i for i, label in enumerate(model.labels)}
        columns = torch.tensor([place[label] for label in names])
        own = logits[:, columns]
        if logits.shape[1] > k:  # the list was scored by itself
            own = logits[:, behind : behind + len(names)]
            behind += len(names)
        found = _figures(names, own, targets[:, columns], threshold)
        chosen = {name: value for name, value in found.items() if name == "mAP" or "@" in name}
        if not math.isnan(chosen["mAP"]):  # else no picture has any of these labels
            result |= {prefix + name: value for name, value in chosen.items()}
    return result


def _figures(labels: tuple[str, ...], logits: Tensor, targets: Tensor, threshold: float) -> dict[str, float]:
    metrics = MultiLabelMetrics(labels, threshold=threshold, at=AT)
    metrics.update(logits, targets)
    return metrics.compute()
