"""Labels that come after training: a threshold from the nearest trained words, a vector from a few pictures.

Shapes: n new labels, m known labels, p pictures, e text width.
"""

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from mldecoder.errors import InputError
from mldecoder.heads.zero_shot import ZeroShotMLDecoder

__all__ = ["neighbour_thresholds", "vector_from_pictures"]


def neighbour_thresholds(new: Tensor, known: Tensor, thresholds: Tensor, *, neighbours: int = 5) -> Tensor:
    """A threshold for labels that were never trained: ``(n, e), (m, e), (m,) -> (n,)``.

    The mean over the nearest known labels by cosine, each weighted by its cosine; labels that point away have no
    say, and where all do, the plain mean over the nearest ones is taken.

    Example:
        >>> known, thresholds = torch.eye(3), torch.tensor([0.2, 0.4, 0.9])
        >>> neighbour_thresholds(torch.tensor([[1.0, 1.0, 0.0]]), known, thresholds, neighbours=2)
        tensor([0.3000])
    """
    if len(known) != len(thresholds) or len(known) == 0:
        raise InputError(f"Every known label needs a threshold: {len(known)} labels, {len(thresholds)} thresholds.")
    cosine = F.normalize(new.float(), dim=1) @ F.normalize(known.float(), dim=1).T  # (n, m)
    weights, nearest = cosine.topk(min(neighbours, len(known)), dim=1)
    weights = weights.clamp(min=0)
    alone = weights.sum(dim=1, keepdim=True) == 0
    weights = torch.where(alone, 1.0, weights)
    return (weights * thresholds[nearest].float()).sum(dim=1) / weights.sum(dim=1)


def vector_from_pictures(
    head: ZeroShotMLDecoder, features: Tensor, known: Tensor, *, temperature: float = 0.1, steps: int = 0
) -> Tensor:
    """A text vector for a label of which only pictures are there: features ``(p, ...)``, ``(m, e) -> (e,)``.

    The head scores the known labels on the pictures. Labels that are high on all of them say what the pictures have
    in common: the vector is the mean of theirs, weighted by a softmax of the mean log-probability over
    ``temperature``. ``steps`` above 0 then moves these weights along the gradient of the mean log-probability of the
    vector itself; the result stays a mean of known words, so that it cannot wander off to where the head says yes to
    any picture.

    Args:
        head: A trained head.
        features: The backbone's features of the pictures.
        known: Text vectors of labels that the head was trained on.
        temperature: Small values let the best labels alone decide.
        steps: Gradient steps on the weights.
    """
    if len(features) == 0:
        raise InputError("A label from pictures needs at least one picture, got none.")
    with torch.no_grad():
        logits = cast("Tensor", head(features, known))
        weights = F.logsigmoid(logits.float()).mean(dim=0) / temperature  # (m,)
    if steps:
        weights = weights.clone().requires_grad_()
        optimiser = torch.optim.Adam([weights], lr=0.1)
        with torch.enable_grad():
            for _ in range(steps):
                vector = weights.softmax(dim=0).to(known.dtype) @ known
                scores = head(features, vector.unsqueeze(0))
                loss = -F.logsigmoid(scores.float()).mean()
                (weights.grad,) = torch.autograd.grad(loss, [weights])
                optimiser.step()
    return weights.detach().softmax(dim=0).to(known.dtype) @ known
