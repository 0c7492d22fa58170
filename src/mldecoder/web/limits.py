"""What the page refuses: files that are too large, and small files that would become too large a picture."""

import re

from PIL import Image

from mldecoder.data.decode import header_size
from mldecoder.errors import ConfigError, DataError

__all__ = ["MAX_PIXELS", "MAX_UPLOAD", "as_text", "check_file", "check_pixels", "parse_size"]

MAX_UPLOAD = "20MB"
"""Largest file that is taken, unless ``--max-upload`` says otherwise."""

MAX_PIXELS = 100_000_000
"""Most pixels of a picture: 300 MB when it is decoded."""

_UNITS = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


def parse_size(text: str) -> int:
    """Bytes in a size such as "20MB".

    Example:
        >>> parse_size("20MB"), parse_size("1.5 kB"), parse_size("300")
        (20971520, 1536, 300)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = found[2].upper() if found else ""
    size = round(float(found[1]) * _UNITS[unit]) if found and unit in _UNITS else 0
    if size < 1:
        raise ConfigError(f"A size must be a number with B, KB, MB or GB behind, got {text!r}. Write it as 20MB.")
    return size


def as_text(size: int) -> str:
    """A size for a person, never more than it is.

    Example:
        >>> as_text(20 * 2**20), as_text(1_999), as_text(300)
        ('20 MB', '1.9 KB', '300 B')
    """
    for unit in ("GB", "MB", "KB"):
        tenths = size * 10 // _UNITS[unit]
        if tenths >= 10:
            return f"{tenths / 10:g} {unit}"
    return f"{size} B"


def check_file(size: int, max_bytes: int) -> None:
    """Refuse a file by its size."""
    if size > max_bytes:
        raise DataError(f"The file has {as_text(size)}, and {as_text(max_bytes)} is the limit. Make it smaller.")


def check_pixels(content: bytes, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse a picture by the size in its header, before anything is decoded; what is no picture passes."""
    try:
        size = header_size(content)
    except Image.DecompressionBombError:  # Pillow's own limit is higher than ours
        raise DataError(f"The picture has more than {max_pixels:,} pixels. Make it smaller.") from None
    if size is None:
        return
    width, height = size
    if width * height > max_pixels:
        raise DataError(
            f"The picture has {width:,} x {height:,} pixels, and {max_pixels:,} in all is the limit. Make it smaller."
        )
