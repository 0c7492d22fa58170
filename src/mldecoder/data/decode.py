"""From any bytes that are a picture to RGB; from any other bytes to one line that says why not."""

import io
import struct
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from mldecoder.errors import DataError

__all__ = ["MAX_PIXELS", "decode", "header_size"]

MAX_PIXELS = 178_956_970
"""Pictures that would decode to more pixels than this are refused (the limit at which Pillow refuses)."""

# Raster formats that people train on. Others that Pillow knows (EPS runs Ghostscript) are not opened.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO")

# EXIF 2.32, tag 0x0112: how the stored picture must be turned to stand upright.
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# What Pillow's readers raise on broken files; its own `open` expects the first four of them too.
_BROKEN = (
    SyntaxError,
    IndexError,
    TypeError,
    struct.error,
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    OverflowError,
    ZeroDivisionError,
    AttributeError,
    Image.DecompressionBombError,
)


def decode(source: bytes | Path | Image.Image, *, at_least: int | None = None) -> Image.Image:
    """Decode a picture to upright RGB.

    Transparent parts become white; 16-bit values keep their proportion; of an animation the first frame counts.

    Args:
        source: The bytes of a file (whatever its extension said), its path, or a picture.
        at_least: A JPEG may be decoded at 1/2, 1/4 or 1/8 of its size while both sides stay this long.

    Raises:
        DataError: with the reason, when there is no whole picture in it.
    """
    if isinstance(source, Path):
        source = _read(source)
    if isinstance(source, bytes) and not source:
        raise DataError("zero bytes")
    with warnings.catch_warnings():
        # Pillow warns of odd EXIF and the like, which is no reason to lose the picture or to fill the screen.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        image = _open(source) if isinstance(source, bytes) else source
        try:
            if isinstance(image, ImageFile.ImageFile):
                _check_size(image, at_least)
            image.load()
            return _rgb(_upright(image))
        except _BROKEN as error:
            raise DataError(_reason(error)) from None


def header_size(content: bytes) -> tuple[int, int] | None:
    """Width and height by the header, before anything is decoded; None where there is no picture.

    Raises:
        Image.DecompressionBombError: where Pillow would not open so many pixels.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of large pictures and of odd files
        try:
            with Image.open(io.BytesIO(content)) as image:
                return image.size
        except Image.DecompressionBombError:
            raise
        except Exception:  # broken files fail in many ways; the decoder says how
            return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError("the file is missing") from None
    except IsADirectoryError:
        raise DataError("a folder, not a picture file") from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})") from None


def _open(data: bytes) -> ImageFile.ImageFile:
    """Like ``Image.open``, without its check of the size, which comes before a JPEG can be asked to be smaller."""
    Image.init()
    last: Exception | None = None
    for name in _FORMATS:
        if name not in Image.OPEN:
            continue  # Pillow was built without it
        factory, accept = Image.OPEN[name]
        try:
            if accept is not None and accept(data[:16]) is not True:
                continue
            opened = factory(io.BytesIO(data), "")
        except _BROKEN as error:
            last = error
            continue
        if isinstance(opened, ImageFile.ImageFile):
            return opened
    raise DataError(_not_a_picture(data, last))


def _not_a_picture(data: bytes, error: Exception | None) -> str:
    head = data[:256].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "not a picture but a web page (a failed download?)"
    if head.startswith(b"<svg") or b"<svg" in head:
        return "an SVG drawing; convert it to PNG"
    if data[4:12] in (b"ftypheic", b"ftypmif1", b"ftypheix"):
        return "a HEIC picture; convert it to JPEG"
    if error is not None and not isinstance(error, UnidentifiedImageError):
        return _reason(error)
    return "not a picture in a known format"


def _check_size(image: ImageFile.ImageFile, at_least: int | None) -> None:
    if at_least is not None:
        image.draft("RGB", (at_least, at_least))
    width, height = image.size
    if width * height > MAX_PIXELS:
        # ask a JPEG for an eighth: draft takes the smallest scale that is still as large as the request
        image.draft("RGB", (max(1, width // 8), max(1, height // 8)))
    if image.width * image.height > MAX_PIXELS:
        raise DataError(f"{width} x {height} pixels, more than the limit of {MAX_PIXELS:,}; make it smaller")
    if min(width, height) < 1:
        raise DataError(f"{width} x {height} pixels: empty")


def _upright(image: Image.Image) -> Image.Image:
    try:
        turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged EXIF fails in many ways, and the picture is whole without it
        return image
    return image.transpose(turn) if turn is not None else image


def _rgb(image: Image.Image) -> Image.Image:
    mode = image.mode
    if mode == "RGB" and "transparency" not in image.info:
        return image
    if mode.startswith("I") or mode == "F":
        return Image.fromarray(_eight_bits(image)).convert("RGB")
    if mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info:
        image = image.convert("RGBA")
        ground = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(ground, image).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """Bring 16-bit, 32-bit and floating-point greys to 0..255."""
    grey = np.asarray(image, dtype=np.float64)
    if image.mode == "F":
        full = 1.0 if grey.max(initial=0.0) <= 1.0 else 255.0
    elif image.mode == "I":
        full = 65535.0 if grey.max(initial=0.0) <= 65535 else float(grey.max())
    else:
        full = 65535.0
    return np.rint(grey.clip(0.0, full) * (255.0 / full)).astype(np.uint8)


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "truncated" in text.lower() or "unexpected end" in text.lower():
        return "truncated: the file ends too early"
    if isinstance(error, Image.DecompressionBombError):
        return f"more pixels than the limit of {MAX_PIXELS:,}; make it smaller"
    if isinstance(error, MemoryError):
        return "too large for the memory"
    return f"damaged ({text})"
