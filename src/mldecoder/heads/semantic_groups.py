"""Classes that mean similar things in one group: the alternative to the paper's random groups.

The paper (section 2.3.2) deals classes out at random and calls clustering by meaning an alternative that needs tuning.
This one has nothing to tune: k-means on the directions of the labels' text vectors, with groups whose sizes are fixed
beforehand and differ by at most one.

Shapes: n classes, k groups, e text width.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mldecoder.errors import ConfigError
from mldecoder.heads.groups import group_sizes

__all__ = ["closeness", "semantic_groups"]

_ROUNDS = 20  # of k-means; a handful is enough, and the best one counts


def semantic_groups(vectors: Tensor, num_queries: int) -> Tensor:
    """The group of each class ``(n,)``, such that classes of a group have similar vectors ``(n, e)``.

    The same vectors give the same groups: nothing is drawn.

    Example:
        >>> semantic_groups(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]]), 2)
        tensor([0, 1, 0, 1])
    """
    if vectors.ndim != 2:
        raise ConfigError(f"vectors must have one row per class, (n, e), got shape {tuple(vectors.shape)}.")
    sizes = group_sizes(len(vectors), num_queries)
    units = F.normalize(vectors.detach().double().cpu(), dim=1)
    groups = _halved(units, sizes)
    best, best_closeness = groups, closeness(units, groups)
    for _ in range(_ROUNDS):
        groups = _dealt(units @ _centres(units, groups, num_queries).T, sizes)
        found = closeness(units, groups)
        if found <= best_closeness + 1e-12:
            break
        best, best_closeness = groups, found
    return _renumbered(best, sizes)


def closeness(vectors: Tensor, groups: Tensor) -> float:
    """Mean cosine between a class and the middle of its group; 1 where groups hold equal vectors."""
    units = F.normalize(vectors.double(), dim=1)
    centres = _centres(units, groups, int(groups.max()) + 1)
    return float((units * centres[groups]).sum(dim=1).mean())


def _centres(units: Tensor, groups: Tensor, k: int) -> Tensor:
    return F.normalize(torch.zeros(k, units.shape[1], dtype=units.dtype).index_add(0, groups, units), dim=1)


def _halved(units: Tensor, sizes: Tensor) -> Tensor:
    """A first guess: halve the classes along the direction in which they differ most, and halve the halves."""
    groups = torch.zeros(len(units), dtype=torch.long)
    waiting = [(torch.arange(len(units)), 0, len(sizes))]  # classes, and the groups first..last that they fill
    while waiting:
        members, first, last = waiting.pop()
        if last - first == 1:
            groups[members] = first
            continue
        centred = units[members] - units[members].mean(dim=0)
        direction = torch.linalg.svd(centred, full_matrices=False).Vh[0]
        order = members[(centred @ direction).argsort(stable=True)]
        middle = (first + last) // 2
        cut = int(sizes[first:middle].sum())
        waiting += [(order[:cut], first, middle), (order[cut:], middle, last)]
    return groups


def _dealt(similarity: Tensor, sizes: Tensor) -> Tensor:
    """Give every class a group with room ``(n, k) -> (n,)``.

    Every class asks for the group it likes best; a full group keeps the classes that fit it best and sends the rest
    on to their next choice, until all are placed.
    """
    n, k = similarity.shape
    asks = similarity.clone()
    group = torch.full((n,), -1)
    while bool((free := group < 0).any()):
        group[free] = asks[free].argmax(dim=1)
        for j in range(k):
            members = (group == j).nonzero().squeeze(1)
            surplus = len(members) - int(sizes[j])
            if surplus > 0:
                sent = members[similarity[members, j].argsort(stable=True)[:surplus]]
                group[sent] = -1
                asks[sent, j] = -torch.inf
    return group


def _renumbered(groups: Tensor, sizes: Tensor) -> Tensor:
    """The same groups, numbered by their first class among groups of the same size, so that numbers say nothing."""
    k = len(sizes)
    first = torch.stack([(groups == j).nonzero()[0, 0] for j in range(k)])
    new = torch.empty(k, dtype=torch.long)
    for size in sorted(set(sizes.tolist())):
        same = (sizes == size).nonzero().squeeze(1)
        new[same[first[same].argsort()]] = same
    return new[groups]
