"""Mixing pictures of a batch: mixup and cutmix, with targets mixed alike, and mosaics, which show what all four show.

Shapes: b batch, n classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mldecoder.data.dataset import UNKNOWN
from mldecoder.data.transforms import AugmentConfig

__all__ = ["mix"]


def mix(images: Tensor, targets: Tensor, augment: AugmentConfig) -> tuple[Tensor, Tensor]:
    """Mix each picture with another one of the batch: images ``(b, 3, h, w)``, targets ``(b, n)``.

    Some pictures become mosaics first. Where mixup and cutmix are on, each batch has one of them by chance. A target
    that either picture does not know is unknown in the mixture.
    """
    if augment.mosaic:
        images, targets = _mosaics(images, targets, augment.mosaic)
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


def _mosaics(images: Tensor, targets: Tensor, chance: float) -> tuple[Tensor, Tensor]:
    """Replace some pictures by four of the batch at half the size, two above two.

    What one of them shows, the mosaic shows; what none shows is unknown where one of them does not know it.
    """
    height, width = images.shape[-2:]
    half = F.interpolate(images, (height // 2, width // 2), mode="area")
    corners = [half.roll(int(turn), 0) for turn in torch.randperm(4)]
    whole = torch.cat([torch.cat(corners[:2], dim=3), torch.cat(corners[2:], dim=3)], dim=2)
    whole = F.pad(whole, (0, width % 2, 0, height % 2), mode="replicate")
    four = torch.stack([targets.roll(turn, 0) for turn in range(4)])
    shown, known = four.amax(dim=0), (four != UNKNOWN).all(dim=0)
    shown = torch.where(known | (shown > 0), shown, UNKNOWN)
    chosen = (torch.rand(len(images)) < chance).to(images.device)
    return torch.where(chosen[:, None, None, None], whole, images), torch.where(chosen[:, None], shown, targets)


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
