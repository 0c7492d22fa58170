"""Mixing pictures of a batch: mixup and cutmix, with targets mixed alike.

Shapes: b batch, n classes.
"""

import torch
from torch import Tensor

from mldecoder.data.dataset import UNKNOWN
from mldecoder.data.transforms import AugmentConfig

__all__ = ["mix"]


def mix(images: Tensor, targets: Tensor, augment: AugmentConfig) -> tuple[Tensor, Tensor]:
    """Mix each picture with another one of the batch: images ``(b, 3, h, w)``, targets ``(b, n)``.

    Where both kinds are on, each batch has one of them by chance. A target that either picture does not know is
    unknown in the mixture.
    """
    kinds = [kind for kind in ("mixup", "cutmix") if getattr(augment, kind) > 0]
    if not kinds:
        return images, targets
    kind = kinds[int(torch.randint(len(kinds), ()))]
    alpha = torch.tensor(float(getattr(augment, kind)))
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    if kind == "mixup":
        images = images.lerp(images.flip(0), 1 - share)
    else:
        images, share = _cut(images, share)
    mixed = targets.float().lerp(targets.flip(0).float(), 1 - share)
    unknown = (targets == UNKNOWN) | (targets.flip(0) == UNKNOWN)
    return images, mixed.masked_fill(unknown, UNKNOWN)


def _cut(images: Tensor, share: float) -> tuple[Tensor, float]:
    """Replace a box of about ``1 - share`` of the area; returns the share of the picture that really stayed."""
    height, width = images.shape[-2:]
    side = (1 - share) ** 0.5
    rows, columns = int(side * height), int(side * width)
    top = int(torch.randint(height - rows + 1, ()))
    left = int(torch.randint(width - columns + 1, ()))
    images = images.clone()
    box = (..., slice(top, top + rows), slice(left, left + columns))
    images[box] = images.flip(0)[box]
    return images, 1 - rows * columns / (height * width)
