"""Which query answers for which class.

A head with fewer queries than classes gives every query a group of classes. Each class then has a *slot*:
its query times the group size, plus its column inside the group.

Shapes: n classes, k queries, g columns a group (the size of the largest group).
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from mldecoder.errors import ConfigError

__all__ = ["Assignment", "GroupLayout", "assign", "check_queries", "group_sizes", "placeholder", "slots_of"]

GroupLayout = Literal["balanced", "ceil"]
Assignment = Literal["random", "ordered"] | Tensor


def check_queries(num_queries: int, num_classes: int) -> None:
    """Refuse a number of queries that leaves a query without a class."""
    if num_classes < 1:
        raise ConfigError(f"num_classes must be at least 1, got {num_classes}. Pass the number of labels.")
    if not 1 <= num_queries <= num_classes:
        raise ConfigError(
            f"num_queries must be between 1 and num_classes={num_classes}, got {num_queries}. "
            f"Use num_queries={num_classes} for one query per class."
        )


def group_sizes(num_classes: int, num_queries: int, layout: GroupLayout = "balanced") -> Tensor:
    """How many classes each query owns: ``(k,)``.

    ``balanced`` sizes differ by at most one. ``ceil`` is the public implementations' layout: full groups first,
    what is left to the next query, nothing to the rest; it exists for converted files.
    """
    check_queries(num_queries, num_classes)
    order = torch.arange(num_queries, device="cpu")
    if layout == "balanced":
        return num_classes // num_queries + (order < num_classes % num_queries).long()
    if layout == "ceil":
        full = -(-num_classes // num_queries)
        return (num_classes - order * full).clamp(0, full)
    raise ConfigError(f"group_layout must be one of {get_args(GroupLayout)}, got {layout!r}.")


def assign(
    num_classes: int,
    num_queries: int,
    groups: Assignment = "random",
    *,
    layout: GroupLayout = "balanced",
    seed: int = 0,
) -> Tensor:
    """The query of each class: ``(n,)``.

    Args:
        num_classes: How many classes there are.
        num_queries: How many queries share them.
        groups: ``"random"`` deals the classes out by a seeded permutation (the paper's way), ``"ordered"`` keeps
            neighbours together, a tensor ``(n,)`` names the query of each class.
        layout: How large the groups are; see :func:`group_sizes`. A given tensor decides that by itself.
        seed: Seed of the random deal.

    Example:
        >>> assign(5, 2, "ordered")
        tensor([0, 0, 0, 1, 1])
    """
    sizes = group_sizes(num_classes, num_queries, layout)
    if isinstance(groups, Tensor):
        return _checked(groups, num_classes, num_queries)
    ordered = torch.arange(num_queries, device="cpu").repeat_interleave(sizes)
    if groups == "ordered":
        return ordered
    if groups == "random":
        generator = torch.Generator().manual_seed(seed)
        return ordered[torch.randperm(num_classes, generator=generator, device="cpu")]
    raise ConfigError(f'groups must be "random", "ordered" or a tensor of query numbers, got {groups!r}.')


def slots_of(query_of_class: Tensor) -> tuple[Tensor, int]:
    """Where each class stands in the flattened ``(k, g)`` output, and the group size ``g``.

    Classes of one query take its columns in class order.

    Example:
        >>> slots_of(torch.tensor([1, 0, 1]))
        (tensor([2, 0, 3]), 2)
    """
    counts = torch.bincount(query_of_class)
    size = int(counts.max())
    by_query = query_of_class.argsort(stable=True)  # classes, query by query
    first = counts.cumsum(0) - counts  # where each query's classes begin in that order
    column = torch.empty_like(query_of_class)
    column[by_query] = torch.arange(len(by_query), device="cpu") - first[query_of_class[by_query]]
    return query_of_class * size + column, size


def placeholder(num_classes: int, num_queries: int, group_size: int) -> Tensor:
    """Any assignment whose largest group has ``group_size`` classes, to be overwritten by a saved one."""
    check_queries(num_queries, num_classes)
    if num_queries == 1:
        return torch.zeros(num_classes, dtype=torch.long)
    rest = assign(num_classes - group_size, num_queries - 1, "ordered") + 1
    return torch.cat([torch.zeros(group_size, dtype=torch.long), rest])


def _checked(groups: Tensor, num_classes: int, num_queries: int) -> Tensor:
    groups = groups.detach().cpu()
    if groups.shape != (num_classes,) or groups.is_floating_point():
        raise ConfigError(
            f"groups must hold one query number per class, shape ({num_classes},) and integer, "
            f"got shape {tuple(groups.shape)} of {groups.dtype}."
        )
    groups = groups.long()
    owned = torch.bincount(groups.clamp(min=0), minlength=num_queries)
    if int(groups.min()) < 0 or len(owned) > num_queries or not bool(owned.all()):
        raise ConfigError(
            f"groups must use every query from 0 to {num_queries - 1} at least once, "
            f"got numbers {int(groups.min())} to {int(groups.max())} with "
            f"{int((owned > 0).sum())} different ones. Renumber them, or pass num_queries to match."
        )
    return groups
