from pathlib import Path

import pytest

from mldecoder.data.dataset import UNKNOWN
from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.picture_files import picture, write

# File names and headers of https://storage.googleapis.com/openimages/web/download_v7.html (image-level labels).
HEADER = "ImageID,Source,LabelName,Confidence\n"
CLASSES = [("/m/011k07", "Tortoise"), ("/m/0k4j", "Car"), ("/m/01g317", "Person"), ("/g/11abc", '"Sprenger, tulip"')]


def open_images(root: Path) -> Path:
    text = "LabelName,DisplayName\n" + "".join(f"{i},{name}\n" for i, name in CLASSES)
    write(root / "oidv6-class-descriptions.csv", text)
    human = (
        "000002b66c9c498e,verification,/m/0k4j,1\n000002b66c9c498e,verification,/m/011k07,0\n"
        "000002b97e5471a0,crowdsource-verification,/m/01g317,1\n0000048549557964,verification,/m/0k4j,0\n"
        "000002b66c9c498e,verification,/m/unlisted,1\n"
    )
    write(root / "oidv6-train-annotations-human-imagelabels.csv", HEADER + human)
    machine = (
        "000002b66c9c498e,machine,/m/011k07,0.9\n000002b66c9c498e,machine,/m/01g317,0.8\n"
        "000002b97e5471a0,machine,/m/0k4j,0.3\n"
    )
    write(root / "train-annotations-machine-imagelabels.csv", HEADER + machine)
    validation = "0001eeaf4aed83f9,verification,/m/0k4j,1\n0004886b7d043cfd,verification,/g/11abc,1\n"
    write(root / "validation-annotations-human-imagelabels.csv", HEADER + validation)
    for i, name in enumerate(("000002b66c9c498e", "000002b97e5471a0")):
        picture(root / "train" / f"{name}.jpg", seed=i)
    picture(root / "validation" / "0001eeaf4aed83f9.jpg")
    picture(root / "validation" / "0004886b7d043cfd.jpg")
    return root


def test_only_what_people_verified_is_known(tmp_path: Path) -> None:
    data = open_dataset(open_images(tmp_path))
    assert data.val is not None
    assert data.labels == ("Tortoise", "Car", "Person", "Sprenger, tulip")
    assert data.train.targets.rows([0, 1]).tolist() == [[0, 1, UNKNOWN, UNKNOWN], [UNKNOWN, UNKNOWN, 1, UNKNOWN]]
    assert data.val.targets.rows([0, 1]).tolist() == [[UNKNOWN, 1, UNKNOWN, UNKNOWN], [UNKNOWN, UNKNOWN, UNKNOWN, 1]]
    assert "1 pictures of oidv6-train-annotations-human-imagelabels.csv are not on disk and left out." in data.notes
    assert data.description.startswith("Open Images, 2 + 2 pictures, 4 labels")
    assert data.train.pictures.name(0) == "000002b66c9c498e.jpg"
    assert isinstance(data.train.pictures.read(1), bytes)


def test_machines_are_heard_where_no_person_spoke(tmp_path: Path) -> None:
    data = open_dataset(open_images(tmp_path), options={"machine_labels": True})
    assert data.train.targets.rows([0, 1]).tolist() == [[0, 1, 1, UNKNOWN], [UNKNOWN, UNKNOWN, 1, UNKNOWN]]


def test_the_list_of_trainable_classes_is_kept_to(tmp_path: Path) -> None:
    open_images(tmp_path)
    write(tmp_path / "oidv6-classes-trainable.txt", "/m/01g317\n/m/0k4j\n")
    data = open_dataset(tmp_path)
    assert data.labels == ("Person", "Car")
    assert data.train.targets.rows([0, 1]).tolist() == [[UNKNOWN, 1], [1, UNKNOWN]]
    assert "2 of 4 labels are kept: those of oidv6-classes-trainable.txt." in data.notes


def test_missing_files_are_named(tmp_path: Path) -> None:
    open_images(tmp_path)
    (tmp_path / "train-annotations-machine-imagelabels.csv").unlink()
    with pytest.raises(DataError, match="machine_labels needs train-annotations-machine"):
        open_dataset(tmp_path, options={"machine_labels": True})
    (tmp_path / "oidv6-class-descriptions.csv").unlink()
    with pytest.raises(DataError, match="needs oidv6-class-descriptions"):
        open_dataset(tmp_path)


def test_a_file_with_other_columns_is_an_error(tmp_path: Path) -> None:
    open_images(tmp_path)
    write(tmp_path / "oidv6-train-annotations-human-imagelabels.csv", "a,b\n1,2\n")
    with pytest.raises(DataError, match="must have the columns ImageID, LabelName and Confidence"):
        open_dataset(tmp_path)
