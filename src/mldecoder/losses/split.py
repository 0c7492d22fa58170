"""The grouped loss over a layer that is split over processes.

Shapes: b images of this process, a images of all, n classes, m classes of this process, k queries, q of this process,
d width.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mldecoder.errors import ConfigError, InputError
from mldecoder.heads.split import SplitGroupLinear
from mldecoder.losses.entries import check_weights
from mldecoder.losses.gathered_targets import gather_targets, of_classes
from mldecoder.losses.grouped import grouped_loss
from mldecoder.losses.registry import Option, all_options
from mldecoder.losses.sparse_targets import SparseTargets
from mldecoder.losses.target_blocks import known_entries

__all__ = ["split_loss"]


def split_loss(
    x: Tensor,
    layer: SplitGroupLinear,
    targets: SparseTargets | Tensor,
    *,
    kind: str = "asymmetric",
    options: Mapping[str, Option] | None = None,
    sample_weights: Tensor | None = None,
    class_weights: Tensor | None = None,
    chunk: int | None = None,
    fuse: bool | None = None,
    averaged: bool = True,
) -> Tensor:
    """Return the loss of all processes' images over all classes, the same number on every process.

    Equal to :func:`mldecoder.losses.grouped_loss` on one process with all the images, gradients included. Every process
    computes the costs of its own classes for all images, and the sums are added up. All processes call it, and
    ``backward``, together.

    Gradients. Those of the share are complete as they are: nothing is to be added up or averaged over the processes.
    What comes before ``x`` gets from each process the gradient of its own images, and the whole gradient is the *sum*
    over the processes. DDP and FSDP take the *mean*, so with ``averaged`` the gradient of ``x`` is multiplied by the
    number of processes; pass false where the gradients are summed up. The loss itself is never to be multiplied.

    Args:
        x: What the decoder gives for this process's images, one vector a query ``(b, k, d)``.
        layer: The split layer.
        targets: Of this process's images: lists of classes, or a dense tensor ``(b, n)``.
        kind: "asymmetric", "bce" or "focal".
        options: The keyword options of that loss; its reduction is over all processes' images.
        sample_weights: One weight an image of this process (b,).
        class_weights: One weight a class (n,), or those of this process's classes (m,).
        chunk: Logits an image that exist at a time on a process.
        fuse: Compile the costs of a block; see :func:`mldecoder.losses.grouped_loss`.
        averaged: Whether gradients of what comes before ``x`` are averaged over the processes afterwards.

    Example:
        >>> layer = SplitGroupLinear(num_classes=1000, num_queries=10, width=8)
        >>> targets = SparseTargets.from_lists([[3, 14], [15]], num_classes=1000)
        >>> split_loss(torch.zeros(2, 10, 8), layer, targets).ndim
        0
    """
    filled = all_options(kind, options)
    if filled.get("reduction") == "none":
        raise ConfigError("reduction must be sum, mean or image_mean, got 'none', which would hold every cost.")
    ranks, share = layer.ranks, layer.share
    lists = targets if isinstance(targets, SparseTargets) else SparseTargets.from_dense(targets)
    if (len(lists), lists.num_classes) != (len(x), layer.num_classes):
        raise InputError(
            f"targets must be of {len(x)} images and {layer.num_classes} classes, "
            f"got {(len(lists), lists.num_classes)}."
        )
    check_weights(len(x), layer.num_classes, sample_weights, None)
    layer.check(x)
    gathered = gather_targets(lists, ranks)
    mine = ranks.to_queries(x, gathered.images, factor=ranks.size if averaged else 1.0)  # (a, q, d)
    if sample_weights is not None:
        sample_weights = torch.cat(ranks.gather(sample_weights, gathered.images))
    if share.num_queries == 0:  # more processes than shares of queries: it only takes part in what travels
        own = 0.0 * (mine.float().sum() + share.weight.sum() + share.bias.sum())
    else:
        own = grouped_loss(
            mine,
            share,
            of_classes(gathered.targets, share.classes),
            kind=kind,
            options={**filled, "reduction": "sum"},
            sample_weights=sample_weights,
            class_weights=_own_weights(layer, class_weights),
            chunk=chunk,
            fuse=fuse,
            num_classes=layer.num_classes,
        )
    scale = _scale(filled, gathered.targets)
    return ranks.add_up(own if scale is None else own * scale.to(own.dtype))


def _own_weights(layer: SplitGroupLinear, weights: Tensor | None) -> Tensor | None:
    """One weight for each of this process's classes: ``(m,)``."""
    share = layer.share
    if weights is None or weights.shape == (share.num_classes,):
        return weights
    check_weights(0, layer.num_classes, None, weights)
    return weights[share.classes]


def _scale(filled: Mapping[str, Option], targets: SparseTargets) -> Tensor | None:
    """What the reduction multiplies the sum of all costs with; None is 1."""
    if filled["reduction"] == "sum":
        return None
    images = len(targets)
    if filled["reduction"] == "mean" and filled["unknown_weight"] == 0:
        return known_entries(targets).clamp(min=1).double().reciprocal()
    divisor = images if filled["reduction"] == "image_mean" else images * targets.num_classes
    return torch.full((), 1 / max(1, divisor), dtype=torch.float64, device=targets.device)
