"""Drawn class folders, so that single-label tables run where no data is: one coloured square, six colours."""

import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from mldecoder.data.scenes import COLOURS

__all__ = ["draw_folders"]

_SIDE, _SQUARE = 32, 12
_COUNTS = {"train": 8, "val": 4}  # pictures a colour


def draw_folders(folder: Path) -> Path:
    """Write ``train`` and ``val`` with a folder of PNGs for each colour; the same pictures every time."""
    for part, count in _COUNTS.items():
        for label, colour in COLOURS.items():
            home = folder / part / label
            home.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                file = home / f"{i}.png"
                if not file.is_file():
                    _picture(colour, f"{part}/{label}/{i}").save(file)
    return folder


def _picture(colour: tuple[float, float, float], name: str) -> Image.Image:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    pixels = rng.integers(80, 176, (_SIDE, _SIDE, 3)).astype(np.uint8)
    top, left = rng.integers(0, _SIDE - _SQUARE, 2)
    pixels[top : top + _SQUARE, left : left + _SQUARE] = np.rint(255 * np.array(colour))
    return Image.fromarray(pixels)
