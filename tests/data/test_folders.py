from pathlib import Path

import pytest

from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.layouts import imagenet
from tests.data.picture_files import picture


def test_class_folders_without_parts_are_one_set(tmp_path: Path) -> None:
    for i, name in enumerate(("dog/1.jpg", "cat/2.JPEG", "cat/more/3.png", ".hidden/4.jpg", "notes/readme.txt")):
        picture(tmp_path / name, seed=i) if not name.endswith("txt") else (tmp_path / "notes").mkdir()
    data = open_dataset(tmp_path)
    assert data.val is None
    assert data.labels == ("cat", "dog")
    assert data.task == "single-label"
    names = [data.train.pictures.name(i) for i in range(3)]
    assert names == ["cat/2.JPEG", "cat/more/3.png", "dog/1.jpg"]
    assert data.train.targets.rows([0, 1, 2]).tolist() == [[1, 0], [1, 0], [0, 1]]


@pytest.mark.parametrize(("below", "val"), [("", "val"), ("", "validation"), ("ILSVRC/Data/CLS-LOC", "val")])
def test_imagenet_has_a_train_and_a_val_folder(tmp_path: Path, below: str, val: str) -> None:
    data = open_dataset(imagenet(tmp_path, below, val))
    assert data.val is not None
    assert data.labels == ("n01440764", "n01443537")
    assert data.val.targets.row(0).tolist() == [0, 1]
    assert data.description.startswith("class folders, 2 + 1 pictures, 2 labels, single-label")


def test_a_part_without_class_folders_is_left_out_with_a_note(tmp_path: Path) -> None:
    picture(tmp_path / "train/a/1.jpg")
    picture(tmp_path / "train/b/1.jpg")
    picture(tmp_path / "test/1.jpg")
    data = open_dataset(tmp_path)
    assert data.val is None
    assert data.notes == ("test/ has no class folders with pictures and is left out.",)


def test_a_folder_of_pictures_alone_is_no_dataset(tmp_path: Path) -> None:
    picture(tmp_path / "images/1.jpg")
    with pytest.raises(DataError, match="no dataset of a known format"):
        open_dataset(tmp_path)
