"""Small pictures on disk for the tests of readers."""

from pathlib import Path

import numpy as np
from PIL import Image


def picture(path: Path, seed: int = 0, size: tuple[int, int] = (24, 16)) -> Path:
    """Write a small picture that differs with the seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def write(path: Path, text: str) -> Path:
    """Write a text file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
