"""Files as they lie in the wild: unusual pictures, and files that are no whole pictures, whatever their name says."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


def scene() -> Image.Image:
    """A picture whose corners differ, so that turning shows: red, green / blue, white."""
    pixels = np.zeros((32, 48, 3), dtype=np.uint8)
    pixels[:16, :24], pixels[:16, 24:] = (255, 0, 0), (0, 255, 0)
    pixels[16:, :24], pixels[16:, 24:] = (0, 0, 255), (255, 255, 255)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def giant_png(side: int) -> bytes:
    """A small file that declares a huge picture: a decompression bomb."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def giant_jpeg(side: int) -> bytes:
    """A JPEG whose header declares a huge size."""
    data = bytearray(encoded(scene(), "JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", side, side)
    return bytes(data)


def _noise(seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8))


def _on_its_side() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(_noise(), "JPEG", exif=exif)


def _sixteen_bits() -> bytes:
    return encoded(Image.fromarray(np.linspace(0, 65535, 768).astype(np.uint16).reshape(24, 32)), "PNG")


ODD = {
    "a png named.jpg": encoded(_noise(), "PNG"),
    "a webp named.png": encoded(_noise(), "WEBP"),
    "capital ending.JPEG": encoded(_noise(), "JPEG"),
    "progressive.jpg": encoded(_noise(), "JPEG", progressive=True),
    "cmyk.jpg": encoded(_noise().convert("CMYK"), "JPEG"),
    "turned by exif.jpg": _on_its_side(),
    "giant.jpg": giant_jpeg(16_000),
    "grey.jpg": encoded(_noise().convert("L"), "JPEG"),
    "grey with alpha.png": encoded(_noise().convert("LA"), "PNG"),
    "rgba.png": encoded(_noise().convert("RGBA"), "PNG"),
    "palette with alpha.png": encoded(_noise().quantize(8), "PNG", transparency=bytes([0, 128] + [255] * 6)),
    "sixteen bits.png": _sixteen_bits(),
    "one bit.png": encoded(_noise().convert("1"), "PNG"),
    "one pixel.png": encoded(_noise().resize((1, 1)), "PNG"),
    "a line.png": encoded(_noise().resize((300, 1)), "PNG"),
    "animated.gif": encoded(_noise(), "GIF", save_all=True, append_images=[_noise(1), _noise(2)]),
}
"""Whole pictures by file name, however unusual."""

BROKEN = {
    "zero bytes.jpg": (b"", "zero bytes"),
    "truncated.jpg": (encoded(_noise(), "JPEG")[:-400], "truncated"),
    "cut in the header.jpg": (encoded(_noise(), "JPEG")[:30], "truncated|damaged|not a picture"),
    "truncated.png": (encoded(_noise(), "PNG")[:300], "truncated|damaged"),
    "truncated.gif": (encoded(_noise(), "GIF")[:60], "truncated|damaged"),
    "truncated.webp": (encoded(_noise(), "WEBP")[:40], "truncated|damaged|not a picture"),
    "text.jpg": (b"this is not a picture\n", "not a picture in a known format"),
    "a [tag] & <mark>.jpg": (b"x", "not a picture in a known format"),
    "web page.jpg": (b"<!DOCTYPE html><html>404</html>", "web page"),
    "drawing.png": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
    "phone.jpg": (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00", "HEIC"),
    "postscript.jpg": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture in a known format"),
    "zeros.jpg": (bytes(4000), "not a picture|damaged|truncated"),
    "spoilt checksum.png": (encoded(scene(), "PNG").replace(b"IDAT", b"IDAT\x01", 1), "damaged|truncated"),
    "bomb.png": (giant_png(60_000), "60000 x 60000 pixels, more than the limit"),
}
"""Files that are no whole pictures, and what the reason must say."""
