import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mldecoder.errors import InputError
from mldecoder.predict import Picture, inputs
from mldecoder.predict.inputs import named_files, sources
from tests.predict.pictures import scene, write_scenes


def pixels(image: Image.Image) -> np.ndarray:  # type: ignore[type-arg]
    return np.asarray(image)


def test_every_kind_of_input_is_the_same_picture(tmp_path: Path) -> None:
    picture = scene(0)
    path = tmp_path / "one.png"
    picture.save(path)
    array = pixels(picture)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    kinds: list[Picture] = [
        path,
        str(path),
        tmp_path,
        buffer.getvalue(),
        bytearray(buffer.getvalue()),
        memoryview(buffer.getvalue()),
        picture,
        array,
        array.astype(np.float32) / 255,
        array.astype(np.float64) / 255,
        tensor,
        tensor.float() / 255,
        array[None],
        tensor[None],
    ]
    for one in kinds:
        (source,) = sources(one)
        assert np.array_equal(pixels(source.read()), array), type(one)
    assert len(list(sources(kinds))) == len(kinds)


def test_arrays_and_tensors_may_be_grey_transparent_or_many() -> None:
    assert pixels(next(sources(np.full((4, 5), 7, np.uint8))).read()).tolist() == [[[7, 7, 7]] * 5] * 4
    assert next(sources(torch.ones(1, 4, 5))).read().getpixel((0, 0)) == (255, 255, 255)
    transparent = np.zeros((4, 5, 4), np.uint8)
    assert next(sources(transparent)).read().getpixel((0, 0)) == (255, 255, 255)  # on white, as files are
    many = list(sources([torch.zeros(3, 3, 4, 5), np.zeros((2, 4, 5, 3), np.uint8)]))
    assert [source.name for source in many] == [f"picture {i}" for i in range(5)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "must be a path, bytes, a PIL picture, an array or a tensor, got int"),
        ([None], "got NoneType"),
        ("https://example.org/a.jpg", "read from this machine"),
        (np.zeros((4, 5, 2), np.uint8), r"1, 3 or 4 channels, got \(4, 5, 2\)"),
        (np.zeros(4, np.uint8), r"\(h, w\), \(h, w, c\) or \(n, h, w, c\), got \(4,\)"),
        (np.zeros((4, 4), np.int32), "uint8, or floats between 0 and 1, got int32"),
        (np.full((4, 4), 2.0), "between 0 and 1, got 2 to 2"),
        (np.full((4, 4), np.nan), "between 0 and 1, got nan"),
        (torch.randn(3, 8, 8), "before any preprocessing"),
        (torch.zeros(8, 8), r"\(c, h, w\) or several \(n, c, h, w\), got \(8, 8\)"),
        (torch.zeros(64, 64, 3), r"\(c, h, w\) with 1, 3 or 4 channels"),
        (np.zeros((0, 4, 3), np.uint8), "channels, got"),
    ],
)
def test_what_is_no_picture_is_refused_in_one_line(wrong: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        list(sources(wrong))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_folder_tree_is_walked_once_whatever_is_named_twice_or_linked(tmp_path: Path) -> None:
    paths = write_scenes(tmp_path / "tree", 9)
    (tmp_path / "tree" / "notes.txt").write_text("no picture")
    (tmp_path / "tree" / ".hidden.png").write_bytes(b"")
    (tmp_path / "tree" / "part 0" / "round").symlink_to(tmp_path / "tree", target_is_directory=True)
    odd = tmp_path / "no ending"
    scene(3).save(odd, "PNG")
    given = [paths[0], tmp_path / "tree", paths[1], tmp_path / "tree" / "part 1", tmp_path / "tree", paths[0], odd]
    found = [Path(source.name) for source in named_files(given)]
    assert sorted(found) == sorted([*paths, odd])
    assert [Path(source.name) for source in named_files([tmp_path / "tree"])] == sorted(paths)


def test_names_in_every_script_and_outside_of_utf8_are_found(tmp_path: Path) -> None:
    names = ["été.png", "猫 🐈.png", "a,b;'c'.png", 'quo"te.png', "new\nline.png"]
    for name in names:
        scene(0).save(tmp_path / name)
    with open(os.fsencode(tmp_path) + b"/\xff.png", "wb") as file:  # noqa: PTH123
        scene(0).save(file, "PNG")
    found = list(named_files([tmp_path]))
    assert len(found) == 6
    assert all(source.read().size == (64, 64) for source in found)


def test_a_folder_of_any_size_is_walked_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_CHUNK", 4)
    for i in range(11):
        (tmp_path / f"{i}.png").touch()
    assert len({source.name for source in named_files([tmp_path])}) == 11


def test_a_folder_that_cannot_be_listed_is_named_and_the_others_are_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_scenes(tmp_path, 3)
    usual = os.scandir

    def guarded(path: Path) -> object:
        if Path(path).name == "part 1":
            raise PermissionError(13, "Permission denied")
        return usual(path)

    monkeypatch.setattr(os, "scandir", guarded)
    found = list(named_files([tmp_path]))
    assert [Path(source.name).name for source in found] == ["scene-0000.png", "part 1", "scene-0002.png"]
    with pytest.raises(Exception, match=r"the folder cannot be read \(Permission denied\)"):
        found[1].read()
