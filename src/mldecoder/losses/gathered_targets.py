"""Targets of all processes' images for each, as lists, and those of one process's classes among them.

Lists are short: a hundred labels an image are a kilobyte, a dense row of ten million classes is ten megabytes.

Shapes: b images of this process, a images of all, e listed entries, n classes, m classes of this process.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mldecoder.errors import InputError
from mldecoder.heads.ranks import Ranks
from mldecoder.losses.sparse_targets import SparseTargets

__all__ = ["Gathered", "gather_targets", "of_classes"]

_DTYPES = [
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@dataclass(frozen=True)
class Gathered:
    """The targets of all images, process by process, and how many images each process has."""

    targets: SparseTargets
    images: list[int]


def gather_targets(targets: SparseTargets, ranks: Ranks) -> Gathered:
    """Give every process the targets of all; all processes call it together."""
    own = [
        len(targets),
        len(targets.columns),
        targets.default,
        _DTYPES.index(targets.values.dtype),
        targets.num_classes,
    ]
    told = ranks.numbers(own, targets.device)
    images, entries, defaults, dtypes, classes = ([row[i] for row in told] for i in range(5))
    if len(set(defaults)) > 1 or len(set(classes)) > 1:
        raise InputError(
            "All processes must have targets of one number of classes and one default, "
            f"got classes {classes} and defaults {defaults}."
        )
    dtype = _DTYPES[dtypes[0]]
    for code in dtypes:  # a process may have mixed its images and another not
        dtype = torch.promote_types(dtype, _DTYPES[code])
    counts = torch.cat(ranks.gather(targets.offsets.diff(), images))  # (a,)
    whole = SparseTargets(
        torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        torch.cat(ranks.gather(targets.columns.long(), entries)),
        torch.cat(ranks.gather(targets.values.to(dtype), entries)),
        targets.num_classes,
        targets.default,
    )
    return Gathered(whole, images)


def of_classes(targets: SparseTargets, classes: Tensor) -> SparseTargets:
    """Targets over some classes ``(m,)`` in rising order, which are numbered from 0 in the result.

    A GPU is waited for once: only it knows how many entries stay.
    """
    columns = targets.columns.long()
    place = torch.searchsorted(classes, columns)
    own = torch.zeros_like(columns, dtype=torch.bool)
    if len(classes):
        own = classes[place.clamp(max=len(classes) - 1)] == columns
    counts = torch.bincount(targets.rows[own], minlength=len(targets))
    return replace(
        targets,
        offsets=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        columns=place[own],
        values=targets.values[own],
        num_classes=len(classes),
    )
