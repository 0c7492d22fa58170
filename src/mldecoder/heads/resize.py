"""Other classes on a trained head: what it learnt about the old ones is kept.

Shapes: n classes, k queries, g classes a query, d width.
"""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from mldecoder.errors import ConfigError
from mldecoder.heads.average_pool import GlobalAveragePool
from mldecoder.heads.groups import slots_of
from mldecoder.heads.layers import GroupLinear
from mldecoder.heads.ml_decoder import MLDecoder
from mldecoder.heads.plus import MLDecoderPlus
from mldecoder.heads.transformer_decoder import TransformerDecoder
from mldecoder.heads.zero_shot import ZeroShotMLDecoder

__all__ = ["with_classes"]


def with_classes(head: nn.Module, source: Sequence[int | None], *, seed: int = 0) -> nn.Module:
    """A copy of a head that scores other classes.

    Args:
        head: A head of this package.
        source: For each new class the old class whose weights it takes over, or ``None`` for a fresh one.
        seed: Seed of fresh queries and weights.

    With one query a class a fresh class gets a query of its own; with groups it joins one of the smallest, so that
    the cost stays the same. Queries that lose their last class go.
    """
    if not source:
        raise ConfigError("A head needs at least one class, got none. Keep at least one label.")
    head = deepcopy(head)
    generator = torch.Generator().manual_seed(seed)
    if isinstance(head, ZeroShotMLDecoder):  # its classes come with every call
        return head
    if isinstance(head, GlobalAveragePool):
        head.classify = _resized_linear(head.classify, source)
    elif isinstance(head, MLDecoder | TransformerDecoder):
        old = head.classify
        query_of_class = _new_queries(old.query_of_class.cpu(), source, one_each=old.num_queries == old.num_classes)
        kept, query_of_class = torch.unique(query_of_class, return_inverse=True)
        head.queries = _resized_queries(head.queries, kept, generator)
        head.classify = _resized_groups(old, kept, query_of_class, source)
        if isinstance(head, MLDecoder):
            head.num_queries = len(kept)
        if isinstance(head, MLDecoderPlus) and head.branch is not None:
            head.branch.classify = _resized_linear(head.branch.classify, source)
    else:
        raise ConfigError(f"Classes can be changed on the heads of this package, got {type(head).__name__}.")
    head.num_classes = len(source)
    return head


def _new_queries(query_of_old: Tensor, source: Sequence[int | None], *, one_each: bool) -> Tensor:
    """The query of each new class, in the old numbering; fresh queries are numbered from k on."""
    num_queries = int(query_of_old.max()) + 1
    sizes = [0] * num_queries
    for old in source:
        if old is not None:
            sizes[int(query_of_old[old])] += 1
    result = []
    for old in source:
        if old is not None:
            query = int(query_of_old[old])
        elif one_each:
            query = len(sizes)
            sizes.append(1)
        else:
            query = min(range(num_queries), key=sizes.__getitem__)
            sizes[query] += 1
        result.append(query)
    return torch.tensor(result)


def _resized_queries(queries: Tensor, kept: Tensor, generator: torch.Generator) -> Tensor:
    fresh = torch.randn(int(kept.max()) + 1, queries.shape[1], generator=generator)
    old = queries.detach()
    fresh = fresh.to(old)
    fresh[: len(old)] = old[: len(fresh)]
    rows = fresh[kept.to(old.device)]
    return nn.Parameter(rows, requires_grad=queries.requires_grad) if isinstance(queries, nn.Parameter) else rows


def _resized_groups(
    old: GroupLinear, kept: Tensor, query_of_class: Tensor, source: Sequence[int | None]
) -> GroupLinear:
    width = old.weight.shape[1]
    new = GroupLinear(len(source), len(kept), width, groups=query_of_class).to(old.weight)
    new.slots = new.slots.to(old.slots.device)
    slots, size = slots_of(query_of_class)
    with torch.no_grad():
        for new_class, old_class in enumerate(source):
            if old_class is None:
                continue
            query, column = divmod(int(slots[new_class]), size)
            old_query, old_column = divmod(int(old.slots[old_class]), old.group_size)
            new.weight[query, :, column] = old.weight[old_query, :, old_column]
            new.bias[new_class] = old.bias[old_class]
    return new


def _resized_linear(old: nn.Linear, source: Sequence[int | None]) -> nn.Linear:
    new = nn.Linear(old.in_features, len(source)).to(old.weight)
    with torch.no_grad():
        for new_class, old_class in enumerate(source):
            if old_class is not None:
                new.weight[new_class] = old.weight[old_class]
                new.bias[new_class] = old.bias[old_class]
    return new
