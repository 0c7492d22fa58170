"""Variation of a whole batch where the model computes: crops, flips and cutout of pictures that were decoded before.

A picture is squashed to a canvas once; a crop is then a box of the canvas, read at evenly spaced points. What is
random comes in from outside, a row of numbers a picture, so that it can be a function of seed and place.

Shapes: b batch, h and w height and width of the result, s and t those of the canvas, d numbers a picture.
"""

import math
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from mldecoder.data.transforms import AugmentConfig

__all__ = ["DRAWS", "BatchTransform", "canvas_interpolation", "canvas_size", "crop_boxes", "squash"]

_TRIES = 10
_RATIOS = (3 / 4, 4 / 3)
_PLACE = slice(2 * _TRIES, 2 * _TRIES + 2)
_FLIPS = slice(2 * _TRIES + 2, 2 * _TRIES + 4)
_CUT = slice(2 * _TRIES + 4, 2 * _TRIES + 6)
_COLOUR = slice(2 * _TRIES + 6, 2 * _TRIES + 9)
DRAWS = 2 * _TRIES + 9
"""How many numbers from 0 to 1 vary a picture, whichever variations are on."""

_Floats = NDArray[np.float64]
_Whole = NDArray[np.int64]


def canvas_size(augment: AugmentConfig, size: tuple[int, int]) -> tuple[int, int]:
    """Height and width at which pictures are kept: a fifth more than wanted, where parts of them will be cut out."""
    if augment.resize == "squash":  # the whole picture every time: what is kept is what is shown
        return size
    return math.ceil(size[0] * 6 / 5), math.ceil(size[1] * 6 / 5)


def canvas_interpolation(augment: AugmentConfig, interpolation: str) -> str:
    """How a picture is brought to its canvas: sharply where crops are read from it, since reading blurs once more."""
    return interpolation if augment.resize == "squash" else "bicubic"


def squash(picture: Image.Image, canvas: tuple[int, int], interpolation: str = "bilinear") -> Tensor:
    """The whole picture on a canvas, whatever its shape: uint8 ``(3, s, t)``."""
    resized = v2.functional.resize(picture, list(canvas), interpolation=InterpolationMode(interpolation))
    return cast("Tensor", v2.functional.pil_to_tensor(resized))


def crop_boxes(draws: _Floats, sizes: _Whole, min_scale: float) -> _Whole:
    """Random parts of pictures: ``(b, d), (b, 2) -> (b, 4)``; top, left, height, width in pixels of the original.

    As torchvision's ``RandomResizedCrop``: an area from ``min_scale`` to all of the picture, a ratio of the sides
    from 3/4 to 4/3, ten tries, and the middle of the picture where none of them fits.

    Args:
        draws: Numbers from 0 to 1.
        sizes: Height and width of the originals.
        min_scale: The smallest part, as a share of the area.
    """
    high, wide = sizes[:, :1], sizes[:, 1:]  # (b, 1)
    area = high * wide * (min_scale + (1 - min_scale) * draws[:, :_TRIES])
    ratio = np.exp(math.log(_RATIOS[0]) + math.log(_RATIOS[1] / _RATIOS[0]) * draws[:, _TRIES : 2 * _TRIES])
    tried = np.rint(np.sqrt(np.stack([area / ratio, area * ratio], axis=2)))  # (b, tries, 2)
    fits = np.logical_and.reduce((tried > 0) & (tried <= sizes[:, None]), axis=2)
    found = np.take_along_axis(tried, fits.argmax(axis=1)[:, None, None], axis=1)[:, 0]  # the first that fits
    middle = np.minimum(sizes, np.rint(np.concatenate([wide / _RATIOS[0], high * _RATIOS[1]], axis=1)))
    some = fits.max(axis=1, keepdims=True)
    box = np.where(some, found, middle)
    rest = sizes - box
    start = np.where(some, draws[:, _PLACE] * (rest + 1), rest / 2)
    return np.concatenate([np.floor(start), box], axis=1).astype(np.int64)


class BatchTransform:
    """Vary the pictures of a batch at once, on their device, in the same few operations for any number of them.

    Args:
        augment: How to vary; ``auto`` and ``colour`` have no part in it.
        size: Height and width of the result.
        interpolation: How a crop is read: ``bilinear`` or ``bicubic``.
    """

    def __init__(self, augment: AugmentConfig, size: tuple[int, int], interpolation: str = "bilinear") -> None:
        self.augment, self.size, self.interpolation = augment, size, interpolation
        self._points = [(2 * np.arange(side) + 1) / side - 1 for side in size]  # middles of pixels, from -1 to 1

    def __call__(self, pictures: Tensor, sizes: _Whole, draws: _Floats, broken: NDArray[np.bool_]) -> Tensor:
        """uint8 canvases ``(b, 3, s, t)`` to uint8 ``(b, 3, h, w)``.

        Args:
            pictures: The canvases.
            sizes: Height and width of the originals: ``(b, 2)``.
            draws: Numbers from 0 to 1: ``(b, d)``.
            broken: Which ones could not be read and stay blank: ``(b,)``.
        """
        height, width = self.size
        plan = [*self._places(sizes, draws), *(self._painted(draws, broken) if self.augment.cutout else ())]
        there = torch.from_numpy(np.concatenate(plan, axis=1, dtype=np.float32))
        if pictures.device.type == "cuda":
            there = there.pin_memory()
        there = there.to(pictures.device, non_blocking=True)  # one way for all numbers: a transfer costs by its count
        rows, columns, *paint = torch.split(there, [part.shape[1] for part in plan], dim=1)
        shape = (len(pictures), height, width)
        grid = torch.stack([columns[:, None].expand(shape), rows[:, :, None].expand(shape)], dim=3)
        # Beyond the border stands the border: half a pixel of it is asked for at the edges.
        out = F.grid_sample(
            pictures.float(), grid, mode=self.interpolation, padding_mode="border", align_corners=False
        ).round_()
        if self.interpolation == "bicubic":
            out = out.clamp_(0, 255)
        if paint:
            inside = paint[0][:, None, :, None] * paint[1][:, None, None, :]
            out = torch.where(inside > 0, paint[2][:, :, None, None], out)
        return out.to(torch.uint8)

    def _places(self, sizes: _Whole, draws: _Floats) -> tuple[_Floats, _Floats]:
        """Where on the canvas each row and column of the result lies, from -1 to 1: ``(b, h), (b, w)``."""
        augment = self.augment
        if augment.resize == "crop":
            boxes = crop_boxes(draws, sizes, augment.min_scale)
            share, centre = boxes[:, 2:] / sizes, (2 * boxes[:, :2] + boxes[:, 2:]) / sizes - 1
        else:
            share, centre = np.ones(sizes.shape), np.zeros(sizes.shape)
        flipped = (draws[:, _FLIPS] < 0.5) & [augment.vertical_flip, augment.flip]
        share = np.where(flipped, -share, share)
        rows, columns = (centre[:, i : i + 1] + share[:, i : i + 1] * self._points[i] for i in (0, 1))
        return rows, columns

    def _painted(self, draws: _Floats, broken: NDArray[np.bool_]) -> tuple[_Floats, _Floats, _Floats]:
        """The box of cutout as in :func:`mldecoder.data.transforms.cutout`: 1 in its rows and columns, its colour."""
        bands = []
        for draw, side in zip(draws[:, _CUT].T, self.size, strict=True):
            box = int(self.augment.cutout * side)
            first = np.floor(draw * side)[:, None] - box // 2
            at = np.arange(side)
            bands.append(((at >= first) & (at < first + box) & ~broken[:, None]).astype(np.float64))
        return bands[0], bands[1], np.floor(draws[:, _COLOUR] * 256)
