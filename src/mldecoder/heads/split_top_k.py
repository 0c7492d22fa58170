"""The best classes of each image from a layer that is split over processes.

Shapes: b images of this process, a images of all, k queries, d width, c classes wanted.
"""

import torch
from torch import Tensor

from mldecoder.errors import ConfigError
from mldecoder.heads.ranking import in_order
from mldecoder.heads.split import SplitGroupLinear
from mldecoder.heads.top_k import top_k

__all__ = ["split_top_k"]


@torch.no_grad()
def split_top_k(x: Tensor, layer: SplitGroupLinear, count: int, *, chunk: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest logits of each own image and their classes: ``(b, k, d) -> (b, c), (b, c)``.

    Equal to :func:`mldecoder.heads.top_k.top_k` on the whole layer, equal logits included. Every process finds the
    best of its own classes for all images; the candidates go to the process of the image, ``count`` from each. All
    processes call it together.

    Args:
        x: What the decoder gives for this process's images, one vector a query.
        layer: The split layer.
        count: How many classes an image.
        chunk: Logits an image that exist at a time on a process; by default as many as fit.
    """
    if not 1 <= count <= layer.num_classes:
        raise ConfigError(f"count must be between 1 and the {layer.num_classes} classes, got {count}.")
    ranks, share, images = layer.ranks, layer.share, layer.images(x)
    if ranks.size == 1:
        return top_k(x, share, count, chunk=chunk)
    mine = ranks.to_queries(x, images)  # (a, q, d)
    found = min(count, share.num_classes)
    values = mine.new_full((len(mine), count), -torch.inf, dtype=_precision(x, share.bias))
    classes = torch.full((len(mine), count), layer.num_classes, device=x.device)  # no class: comes after all others
    if found:
        values[:, :found], best = top_k(mine, share, found, chunk=chunk)
        classes[:, :found] = share.classes[best]
    columns = [count] * ranks.size
    return in_order(ranks.to_images(values, images, columns), ranks.to_images(classes, images, columns), count)


def _precision(x: Tensor, bias: Tensor) -> torch.dtype:
    """Candidates travel in a precision that holds every process's logits, whatever autocast says."""
    return torch.promote_types(x.dtype, bias.dtype)
