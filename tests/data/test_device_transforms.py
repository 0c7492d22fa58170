"""Batches varied on the device against one picture at a time, cut and resized by Pillow."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from scipy.stats import ks_2samp  # type: ignore[import-untyped]
from torch.overrides import TorchFunctionMode
from torchvision.transforms import v2

from mldecoder.data.device_transforms import (
    DRAWS,
    BatchTransform,
    canvas_interpolation,
    canvas_size,
    crop_boxes,
    squash,
)
from mldecoder.data.transforms import AugmentConfig

PLAIN = AugmentConfig(flip=False)
WHOLE = AugmentConfig(resize="squash", flip=False)
SIZES = [(300, 400), (400, 300), (224, 224), (500, 333)]


def draws_of(count: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).random((count, DRAWS))


def photo(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """Waves and edges of all orientations, coarse enough to be a picture and not noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : size[0], 0 : size[1]] / 40
    layers = [np.sin(a * x + b * y + c) for a, b, c in rng.normal(size=(9, 3))]
    pixels = np.stack(layers, axis=2).reshape(*size, 3, 3).mean(3) * 90 + 128
    pixels[size[0] // 3 : size[0] // 2, size[1] // 4 : size[1] // 2] = rng.integers(0, 256, 3)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def slow_box(draws: NDArray[np.float64], size: tuple[int, int], min_scale: float) -> list[int]:
    """Torchvision's way, one picture and one try at a time."""
    high, wide = size
    for i in range(10):
        area = high * wide * (min_scale + (1 - min_scale) * draws[i])
        ratio = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * draws[10 + i])
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= wide and 0 < h <= high:
            return [int(draws[20] * (high - h + 1)), int(draws[21] * (wide - w + 1)), h, w]
    h, w = high, wide
    if wide / high < 3 / 4:
        h = round(wide / (3 / 4))
    elif wide / high > 4 / 3:
        w = round(high * 4 / 3)
    return [(high - h) // 2, (wide - w) // 2, h, w]


@given(
    sizes=st.lists(st.tuples(st.integers(1, 900), st.integers(1, 900)), min_size=1, max_size=8),
    min_scale=st.floats(0.01, 1.0),
    seed=st.integers(0, 1000),
)
def test_boxes_are_those_of_one_try_after_the_other(sizes: list[tuple[int, int]], min_scale: float, seed: int) -> None:
    draws = draws_of(len(sizes), seed)
    found = crop_boxes(draws, np.array(sizes), min_scale)
    assert found.tolist() == [slow_box(row, size, min_scale) for row, size in zip(draws, sizes, strict=True)]


@pytest.mark.parametrize("size", [(300, 400), (224, 224), (60, 400)])
@pytest.mark.parametrize("min_scale", [0.08, 0.5])
def test_boxes_are_distributed_as_torchvisions(size: tuple[int, int], min_scale: float) -> None:
    count = 3000
    crop = v2.RandomResizedCrop(224, scale=(min_scale, 1.0))
    blank = torch.empty(3, *size)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = [crop.make_params([blank]) for _ in range(count)]
    theirs = np.array([[box[name] for name in ("top", "left", "height", "width")] for box in found])
    ours = crop_boxes(draws_of(count, 1), np.tile(size, (count, 1)), min_scale)
    for column in range(4):
        assert ks_2samp(ours[:, column], theirs[:, column]).pvalue > 1e-3
    assert ks_2samp(ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3]).pvalue > 1e-3
    assert ks_2samp(ours[:, 3] / ours[:, 2], theirs[:, 3] / theirs[:, 2]).pvalue > 1e-3


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_a_crop_looks_like_pillows_crop_of_the_same_box(interpolation: str) -> None:
    augment, size = PLAIN, (96, 80)
    draws, pictures = draws_of(len(SIZES)), [photo(s, i) for i, s in enumerate(SIZES)]
    canvas = canvas_size(augment, size)
    assert canvas == (116, 96)
    how = canvas_interpolation(augment, interpolation)
    kept = torch.stack([squash(picture, canvas, how) for picture in pictures])
    out = BatchTransform(augment, size, interpolation)(kept, np.array(SIZES), draws, np.zeros(len(SIZES), np.bool_))
    assert (out.shape, out.dtype) == ((len(SIZES), 3, *size), torch.uint8)
    mode = Image.Resampling.BILINEAR if interpolation == "bilinear" else Image.Resampling.BICUBIC
    for i, (top, left, height, width) in enumerate(crop_boxes(draws, np.array(SIZES), augment.min_scale).tolist()):
        part = pictures[i].crop((left, top, left + width, top + height)).resize(size[::-1], mode)
        expected = torch.from_numpy(np.array(part)).permute(2, 0, 1).float()
        assert (out[i].float() - expected).abs().mean() < 2.0
        other = out[(i + 1) % len(out)].float()  # what another picture would give
        assert (other - expected).abs().mean() > 20


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_whole_pictures_and_their_mirror_images_are_exact(interpolation: str) -> None:
    augment = AugmentConfig(resize="squash", flip=True, vertical_flip=True)
    count, size = 16, (33, 50)
    assert canvas_size(augment, size) == size
    assert canvas_interpolation(augment, interpolation) == interpolation
    noise = np.random.default_rng(0).integers(0, 256, (count, 70, 41, 3), dtype=np.uint8)
    kept = torch.stack([squash(Image.fromarray(picture), size, interpolation) for picture in noise])
    draws = draws_of(count)
    sizes, broken = np.tile((70, 41), (count, 1)), np.zeros(count, np.bool_)
    out = BatchTransform(augment, size, interpolation)(kept, sizes, draws, broken)
    seen = set()
    for i in range(count):
        vertical, horizontal = draws[i, 22] < 0.5, draws[i, 23] < 0.5
        sides = [side for side, on in ((-2, vertical), (-1, horizontal)) if on]
        assert torch.equal(out[i], kept[i].flip(sides))
        seen.add((vertical, horizontal))
    assert len(seen) == 4
    assert torch.equal(BatchTransform(WHOLE, size, interpolation)(kept, sizes, draws, broken), kept)


@given(share=st.floats(0.01, 0.99), size=st.tuples(st.integers(1, 40), st.integers(1, 40)), seed=st.integers(0, 1000))
def test_cutout_paints_the_same_box_as_on_one_picture(share: float, size: tuple[int, int], seed: int) -> None:
    count = 3
    kept = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (count, 3, *size), dtype=np.uint8))
    draws = draws_of(count, seed)
    vary = BatchTransform(WHOLE.model_copy(update={"cutout": share}), size)
    out = vary(kept, np.tile(size, (count, 1)), draws, np.array([False, False, True]))
    for i in range(2):
        top, left = (int(draws[i, 24 + j] * size[j]) - int(share * size[j]) // 2 for j in (0, 1))
        expected = kept[i].clone()
        rows = slice(max(top, 0), max(top + int(share * size[0]), 0))
        columns = slice(max(left, 0), max(left + int(share * size[1]), 0))
        expected[:, rows, columns] = torch.tensor([int(256 * u) for u in draws[i, 26:]], dtype=torch.uint8)[
            :, None, None
        ]
        assert torch.equal(out[i], expected)
    assert torch.equal(out[2], kept[2])  # broken: nothing is painted


class Calls(TorchFunctionMode):
    """Counts calls into torch."""

    count = 0

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        self.count += "__get__" not in getattr(func, "__name__", "")  # reading a shape is none
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("count", [1, 64])
def test_a_batch_takes_few_operations_whatever_its_size(count: int) -> None:
    vary = BatchTransform(AugmentConfig(cutout=0.5, vertical_flip=True), (32, 32))
    kept = torch.zeros(count, 3, 39, 39, dtype=torch.uint8)
    with Calls() as calls:
        vary(kept, np.tile((300, 400), (count, 1)), draws_of(count), np.zeros(count, np.bool_))
    assert 5 < calls.count <= 25
