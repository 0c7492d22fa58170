import contextlib
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mldecoder.data.decode import decode
from mldecoder.errors import DataError
from tests.data.odd_files import BROKEN, ODD, chunk, encoded, giant_jpeg, giant_png, scene


def close(image: Image.Image, to: Image.Image, within: int = 12) -> bool:
    a, b = np.asarray(image).astype(int), np.asarray(to).astype(int)
    return a.shape == b.shape and float(np.abs(a - b).mean()) < within


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "ICO", "JPEG2000"])
def test_common_formats_are_told_by_content_not_by_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.jpg"
    path.write_bytes(encoded(scene(), kind))
    image = decode(path)
    assert image.mode == "RGB"
    if kind != "ICO":  # which keeps squares
        assert close(image, scene())
    assert decode(path.read_bytes()).size == image.size


def test_a_cmyk_jpeg_keeps_its_colours() -> None:
    assert close(decode(encoded(scene().convert("CMYK"), "JPEG", quality=95)), scene())


def test_sixteen_bit_grey_is_scaled_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 64).astype(np.uint16)[None, :].repeat(8, axis=0)
    image = decode(encoded(Image.fromarray(ramp), "PNG"))
    assert np.abs(np.asarray(image)[0, :, 1].astype(int) - np.rint(ramp[0] / 257)).max() <= 1


def test_sixteen_bit_colour_is_scaled() -> None:
    row = b"\0" + struct.pack(">HHH", 65535, 32768, 0) * 4
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 1, 16, 2, 0, 0, 0))
    data = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")
    assert decode(data).getpixel((0, 0)) == (255, 128, 0)


def test_floating_point_and_32_bit_greys_are_scaled() -> None:
    unit = np.linspace(0, 1, 16, dtype=np.float32)[None, :].repeat(2, axis=0)
    assert np.asarray(decode(encoded(Image.fromarray(unit), "TIFF")))[0, -1].tolist() == [255] * 3
    wide = (unit * 70000).astype(np.int32)
    assert np.asarray(decode(encoded(Image.fromarray(wide), "TIFF")))[0, [0, -1], 0].tolist() == [0, 255]


def test_transparent_parts_become_white() -> None:
    image = scene().convert("RGBA")
    image.putalpha(Image.fromarray(np.where(np.arange(48) < 24, 255, 0).astype(np.uint8)[None, :].repeat(32, axis=0)))
    for source in (encoded(image, "PNG"), encoded(image, "WEBP", lossless=True)):
        decoded = decode(source)
        assert decoded.getpixel((2, 2)) == (255, 0, 0)
        assert decoded.getpixel((40, 2)) == (255, 255, 255)


def test_a_palette_with_alpha_is_decoded_by_its_palette() -> None:
    image = scene().quantize(4)
    red = image.getpixel((2, 2))
    data = encoded(image, "PNG", transparency=bytes(0 if i == red else 255 for i in range(4)))
    decoded = decode(data)
    assert decoded.getpixel((2, 2)) == (255, 255, 255)
    assert decoded.getpixel((40, 2)) == (0, 255, 0)


def test_grey_with_alpha_one_bit_and_plain_grey_become_rgb() -> None:
    grey = scene().convert("L")
    with_alpha = grey.convert("LA")
    with_alpha.putalpha(0)
    assert decode(encoded(with_alpha, "PNG")).getpixel((0, 0)) == (255, 255, 255)
    assert close(decode(encoded(grey, "PNG")), grey.convert("RGB"))
    assert close(decode(encoded(grey, "JPEG")), grey.convert("RGB"))
    assert decode(encoded(scene().convert("1"), "PNG")).getpixel((40, 30)) == (255, 255, 255)
    assert decode(encoded(scene(), "PNG", transparency=(255, 0, 0))).getpixel((2, 2)) == (255, 255, 255)


def test_of_an_animation_the_first_frame_counts() -> None:
    data = encoded(scene(), "GIF", save_all=True, append_images=[scene().rotate(180)] * 2)
    assert close(decode(data), scene())


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_every_exif_orientation_is_turned_upright(orientation: int, kind: str) -> None:
    turned = {
        1: scene(),
        2: scene().transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: scene().transpose(Image.Transpose.ROTATE_180),
        4: scene().transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: scene().transpose(Image.Transpose.TRANSPOSE),
        6: scene().transpose(Image.Transpose.ROTATE_90),
        7: scene().transpose(Image.Transpose.TRANSVERSE),
        8: scene().transpose(Image.Transpose.ROTATE_270),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert close(decode(encoded(turned, kind, exif=exif)), scene())


def test_damaged_exif_does_not_cost_the_picture() -> None:
    data = encoded(scene(), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff" + b"\x00" * 8)
    assert close(decode(data), scene())


def test_a_giant_jpeg_is_decoded_smaller_and_a_giant_png_is_refused() -> None:
    with pytest.raises(DataError, match="40000 x 40000 pixels, more than the limit"):
        decode(giant_png(40_000))
    assert decode(giant_jpeg(20_000)).size == (2500, 2500)


def test_a_large_jpeg_may_be_decoded_smaller() -> None:
    data = encoded(scene().resize((1600, 1200)), "JPEG")
    assert decode(data).size == (1600, 1200)
    small = decode(data, at_least=224)
    assert small.size == (400, 300)
    assert close(small, scene().resize((400, 300)))


@pytest.mark.parametrize("name", ODD)
def test_unusual_pictures_are_pictures(name: str) -> None:
    assert decode(ODD[name]).mode == "RGB"


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_whole_picture_is_named_in_one_line(name: str) -> None:
    data, reason = BROKEN[name]
    with pytest.raises(DataError, match=reason) as error:
        decode(data)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").mkdir()
    with pytest.raises(DataError, match="a folder"):
        decode(tmp_path / "x.jpg")
    with pytest.raises(DataError, match="missing"):
        decode(tmp_path / "y.jpg")


@pytest.mark.parametrize("seed", range(200))
def test_random_damage_never_escapes_as_another_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"][seed % 6]
    data = np.frombuffer(encoded(scene(), kind), dtype=np.uint8).copy()
    data[rng.integers(0, len(data), 6)] = rng.integers(0, 256, 6)
    with contextlib.suppress(DataError):
        assert decode(data.tobytes()).mode == "RGB"
