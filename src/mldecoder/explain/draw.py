"""Maps laid over pictures, and pictures with captions set side by side.

Shapes: h and w height and width of the picture, r and c rows and columns of the grid.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from mldecoder.explain.geometry import Box

__all__ = ["TILE", "lay_over", "set_side_by_side", "spread", "tile"]

TILE = 240
"""Longest side of a picture on a contact sheet."""

_PAD, _TEXT, _SMALL = 10, 16, 12
_INK, _SOFT, _PAPER = (17, 24, 39), (107, 114, 128), (255, 255, 255)
_LEAST, _MOST = 256, 1024  # between which the longest side of an overlay lies

_Array = NDArray[np.float64]


def spread(map_: _Array, size: tuple[int, int], box: Box) -> tuple[_Array, NDArray[np.bool_]]:
    """Spread a map ``(r, c)`` smoothly over the part of a picture that the model saw.

    Returns the values ``(h, w)``, zero where it did not look, and which pixels it saw.
    """
    width, height = size
    left, top, right, bottom = box
    x, y = max(0, round(left)), max(0, round(top))
    x_end, y_end = max(x + 1, min(width, round(right))), max(y + 1, min(height, round(bottom)))
    rows, columns = map_.shape
    grid_box = (  # the visible part of the map, in cells
        (x - left) / (right - left) * columns,
        (y - top) / (bottom - top) * rows,
        (x_end - left) / (right - left) * columns,
        (y_end - top) / (bottom - top) * rows,
    )
    grid_box = (max(grid_box[0], 0), max(grid_box[1], 0), min(grid_box[2], columns), min(grid_box[3], rows))
    image = Image.fromarray(map_.astype(np.float32))
    smooth = image.resize((x_end - x, y_end - y), Image.Resampling.BICUBIC, box=grid_box)
    values, seen = np.zeros((height, width)), np.zeros((height, width), dtype=bool)
    low, high = float(map_.min()), float(map_.max())
    values[y:y_end, x:x_end] = np.asarray(smooth, dtype=np.float64).clip(low, high)  # bicubic overshoots
    seen[y:y_end, x:x_end] = True
    return values, seen


def lay_over(picture: Image.Image, map_: _Array, box: Box) -> Image.Image:
    """A picture that keeps its colours where the map is high and turns grey and dark where it is low.

    The map is shown relative to its highest value. Negative values, which only contributions have, are tinted blue.
    What the model did not see is hatched.
    """
    longest = max(picture.size)
    scale = min(max(longest, _LEAST), _MOST) / longest
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    shown = picture.resize(size, Image.Resampling.BICUBIC)
    values, seen = spread(map_, size, tuple(side * scale for side in box))  # type: ignore[arg-type]
    values = values / max(float(np.abs(map_).max()), 1e-12)
    colour = np.asarray(shown, dtype=np.float64)
    grey = colour @ np.array([0.299, 0.587, 0.114])
    dark = np.repeat((0.42 * grey + 12)[..., None], 3, axis=2)
    weight = values.clip(0, 1)[..., None]
    made = weight * colour + (1 - weight) * dark
    made += (0.35 * weight * (1 - weight) * 4) * np.array([70.0, 22.0, -30.0])  # a warm rim
    against = (-values).clip(0, 1)[..., None]
    made = (1 - 0.6 * against) * made + 0.6 * against * np.array([37.0, 99.0, 235.0])
    hatch = (np.add.outer(np.arange(size[1]), np.arange(size[0])) % 12 < 2) & ~seen
    made[~seen] = 0.5 * made[~seen] + 60
    made[hatch] = 150
    return Image.fromarray(made.clip(0, 255).astype(np.uint8))


def tile(
    picture: Image.Image, title: str, notes: Sequence[str] = (), *, ending: str = "", lines: int = 1
) -> Image.Image:
    """A picture with a title and small notes below; ``lines`` notes have room.

    A title that is too long is cut; its ``ending``, such as a score, always stays.
    """
    scale = TILE / max(picture.size)
    width, height = (max(1, round(side * scale)) for side in picture.size)
    made = Image.new("RGB", (TILE, height + 8 + _TEXT + 6 + lines * (_SMALL + 5)), _PAPER)
    made.paste(picture.resize((width, height), Image.Resampling.LANCZOS), ((TILE - width) // 2, 0))
    draw = ImageDraw.Draw(made)
    draw.text((0, height + 6), _fit(title, _TEXT, ending), fill=_INK, font=_font(_TEXT))
    for i, note in enumerate(notes[:lines]):
        place = (0, height + 6 + _TEXT + 6 + i * (_SMALL + 5))
        draw.text(place, _fit(note, _SMALL), fill=_SOFT, font=_font(_SMALL))
    return made


def set_side_by_side(rows: Sequence[Sequence[Image.Image]]) -> Image.Image:
    """Tiles in rows on white."""
    widths = [sum(one.width + _PAD for one in row) + _PAD for row in rows]
    heights = [max(one.height for one in row) + _PAD for row in rows]
    made = Image.new("RGB", (max(widths), sum(heights) + _PAD), _PAPER)
    y = _PAD
    for row, height in zip(rows, heights, strict=True):
        x = _PAD
        for one in row:
            made.paste(one, (x, y))
            x += one.width + _PAD
        y += height
    return made


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """A font with Latin, Greek, Cyrillic and more, which comes with matplotlib."""
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def _fit(text: str, size: int, ending: str = "") -> str:
    """A text cut so that it fits under a tile with its ending."""
    font = _font(size)
    if font.getlength(text + ending) <= TILE:
        return text + ending
    while text and font.getlength(f"{text}…{ending}") > TILE:
        text = text[:-1]
    return f"{text}…{ending}"
