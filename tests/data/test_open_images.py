from pathlib import Path

import pytest

from mldecoder.data.dataset import UNKNOWN
from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.layouts import open_images
from tests.data.picture_files import write


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
