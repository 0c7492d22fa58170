"""From a decoded picture to the tensor that a model takes.

Worker processes hand over small uint8 tensors; scaling, mean and spread are applied to the whole batch on the device.

Shapes: b batch, h and w height and width.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, cast

import torch
from PIL import Image
from pydantic import Field
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from mldecoder.config import PreprocessingConfig, Section
from mldecoder.errors import ConfigError

__all__ = ["AugmentConfig", "Transform", "cutout", "evaluation_transform", "normalise", "training_transform"]

Transform = Callable[[Image.Image], Tensor]


class AugmentConfig(Section):
    """How training pictures are varied.

    ``resize`` is ``"crop"`` (a random part of the picture) or ``"squash"`` (the whole picture, whatever its shape);
    ``magnitude`` is how far RandAugment goes, from 0 to 1, and ``magnitude_spread`` how much that differs from picture
    to picture; ``cutout`` is the side of a painted-over box as a share of the picture's; ``mosaic`` is the
    share of pictures that become four in one, for several labels a picture; ``repeats`` shows each picture several
    times an epoch, differently each time, and fewer pictures in all (repeated augmentation); ``calm`` is the number of
    last epochs in which pictures are whole, unmixed and only flipped.
    """

    resize: Literal["crop", "squash"] = "crop"
    min_scale: float = 0.5
    flip: bool = True
    vertical_flip: bool = False
    auto: Literal["none", "rand", "auto", "trivial"] = "none"
    magnitude: float = Field(default=0.3, ge=0, le=1)
    magnitude_spread: float = Field(default=0.0, ge=0)
    cutout: float = 0.0
    colour: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    mosaic: float = Field(default=0.0, ge=0, le=1)
    repeats: int = 1
    calm: int = Field(default=0, ge=0)

    def in_epoch(self, epoch: int, epochs: int) -> "AugmentConfig":
        """How pictures are varied in one epoch of a run, counted from 0: itself, or the calm variation."""
        first = self.first_calm(epochs)
        return self if first is None or epoch < first else self.calmed()

    def first_calm(self, epochs: int) -> int | None:
        """The first calm epoch of a run, counted from 0; None where there is none."""
        return max(0, epochs - self.calm) if self.calm else None

    def calmed(self) -> "AugmentConfig":
        """The variation of the calm epochs: whole pictures, flipped as ever."""
        return AugmentConfig(
            resize="squash", flip=self.flip, vertical_flip=self.vertical_flip, repeats=self.repeats, calm=self.calm
        )


def training_transform(augment: AugmentConfig, size: tuple[int, int], interpolation: str = "bilinear") -> Transform:
    """Vary a picture at random: RGB picture to uint8 ``(3, h, w)``. Its chance comes from torch's generator."""
    mode = InterpolationMode(interpolation)
    steps: list[Callable[..., object]] = []
    if augment.resize == "crop":
        if not 0 < augment.min_scale <= 1:
            raise ConfigError(f"augment.min_scale must be above 0 and at most 1, got {augment.min_scale}.")
        steps.append(v2.RandomResizedCrop(size, scale=(augment.min_scale, 1.0), interpolation=mode))
    else:
        steps.append(v2.Resize(size, interpolation=mode))
    if augment.flip:
        steps.append(v2.RandomHorizontalFlip())
    if augment.vertical_flip:
        steps.append(v2.RandomVerticalFlip())
    if augment.colour:
        strength = augment.colour
        steps.append(v2.ColorJitter(strength, strength, strength))
    if augment.auto != "none":
        steps.append(_automatic(augment))
    steps.append(v2.PILToTensor())
    if augment.cutout:
        if not 0 < augment.cutout < 1:
            raise ConfigError(f"augment.cutout must be between 0 and 1, got {augment.cutout}.")
        steps.append(partial(cutout, share=augment.cutout))
    return cast("Transform", _Chain(steps))


def _automatic(augment: AugmentConfig) -> Callable[..., object]:
    if augment.auto == "rand":
        return cast("Callable[..., object]", _RandAugment(augment.magnitude, augment.magnitude_spread))
    return cast("Callable[..., object]", v2.AutoAugment() if augment.auto == "auto" else v2.TrivialAugmentWide())


def evaluation_transform(preprocessing: PreprocessingConfig) -> Transform:
    """Bring a picture to the model's size, the same way every time: RGB picture to uint8 ``(3, h, w)``."""
    mode = InterpolationMode(preprocessing.interpolation)
    size = preprocessing.size
    if preprocessing.resize == "squash":
        return cast("Transform", _Chain([v2.Resize(size, interpolation=mode), v2.PILToTensor()]))
    shorter = round(min(size) / preprocessing.crop_pct)
    crop = [_not_thin, v2.Resize(shorter, interpolation=mode), v2.CenterCrop(size), v2.PILToTensor()]
    return cast("Transform", _Chain(crop))


def normalise(images: Tensor, preprocessing: PreprocessingConfig) -> Tensor:
    """uint8 ``(b, 3, h, w)`` to float32, scaled to 0..1, less the mean, over the spread."""
    mean = torch.tensor(preprocessing.mean, device=images.device).view(-1, 1, 1) * 255
    std = torch.tensor(preprocessing.std, device=images.device).view(-1, 1, 1) * 255
    return (images.float() - mean) / std


def cutout(picture: Tensor, share: float) -> Tensor:
    """Paint a box of ``share`` of the sides in one random colour, anywhere, cut at the border."""
    height, width = picture.shape[-2:]
    top = int(torch.randint(height, ())) - int(share * height) // 2
    left = int(torch.randint(width, ())) - int(share * width) // 2
    rows = slice(max(top, 0), max(top + int(share * height), 0))
    columns = slice(max(left, 0), max(left + int(share * width), 0))
    picture[:, rows, columns] = torch.randint(256, (picture.shape[0], 1, 1), dtype=picture.dtype)
    return picture


class _RandAugment(v2.RandAugment):  # type: ignore[misc]  # torchvision says nothing about its types
    """RandAugment whose strength, a share of the strongest, is drawn anew for each picture."""

    def __init__(self, share: float, spread: float) -> None:
        super().__init__()
        self.share, self.spread = share, spread

    def forward(self, *inputs: object) -> object:
        share = self.share + self.spread * float(torch.randn(())) if self.spread else self.share
        strongest = self.num_magnitude_bins - 1
        self.magnitude = round(min(max(share, 0.0), 1.0) * strongest)
        return super().forward(*inputs)


def _not_thin(picture: Image.Image) -> Image.Image:
    """The middle of a picture that is far longer than wide: resized whole, it could fill the memory."""
    longest = 8 * min(picture.size)
    if max(picture.size) <= longest:
        return picture
    return cast(
        "Image.Image", v2.functional.center_crop(picture, [min(picture.height, longest), min(picture.width, longest)])
    )


class _Chain:
    """Steps one after another; a class, so that it travels to worker processes."""

    def __init__(self, steps: list[Callable[..., object]]) -> None:
        self.steps = steps

    def __call__(self, picture: object) -> object:
        for step in self.steps:
            picture = step(picture)
        return picture
