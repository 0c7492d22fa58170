from collections.abc import Callable
from pathlib import Path

import pytest

from mldecoder.data.dataset import UNKNOWN
from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.layouts import (
    NUS_CONCEPTS,
    NUS_NAMINGS,
    NUS_TEST,
    NUS_TRAIN,
    by_number,
    by_number_and_secret,
    nus_labels,
    nus_wide,
    nus_wide_csv,
)
from tests.data.picture_files import picture, write


@pytest.mark.parametrize("naming", NUS_NAMINGS)
def test_every_naming_found_in_the_wild_is_resolved(tmp_path: Path, naming: Callable[[str], str]) -> None:
    data = open_dataset(nus_wide(tmp_path, naming))
    assert data.val is not None
    assert data.labels == tuple(NUS_CONCEPTS)
    assert data.train.targets.rows([0, 1, 2]).tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert data.val.targets.rows([0, 1]).tolist() == [[0, 1, 0], [0, 0, 1]]
    for i, name in enumerate(NUS_TRAIN):
        assert data.train.pictures.read(i) == (tmp_path / naming(name)).read_bytes()


def test_the_925_tags_are_those_that_are_no_concepts(tmp_path: Path) -> None:
    nus_wide(tmp_path)
    data = open_dataset(tmp_path, options={"nus_labels": "925"})
    assert data.labels == ("nature", "sky", "interestingness")
    assert data.train.targets.rows([0, 1, 2]).tolist() == [[0, 0, 0], [1, 1, 0], [0, 0, 1]]


def test_all_1006_labels_leave_the_81_unknown_in_training(tmp_path: Path) -> None:
    nus_wide(tmp_path)
    data = open_dataset(tmp_path, options={"nus_labels": "1006"})
    assert data.val is not None
    assert data.labels == ("nature", "sky", "interestingness", *NUS_CONCEPTS)
    assert data.train.targets.row(1).tolist() == [1, 1, 0, UNKNOWN, UNKNOWN, UNKNOWN]
    assert data.val.targets.row(1).tolist() == [0, 1, 0, 0, 0, 1]


def test_without_ground_truth_users_tags_stand_in_and_a_note_says_so(tmp_path: Path) -> None:
    nus_wide(tmp_path, truth=False)
    data = open_dataset(tmp_path)
    assert data.train.targets.row(0).tolist() == [1, 0, 0]
    assert any("users' tags" in note for note in data.notes)


def test_pictures_that_are_not_on_disk_are_counted(tmp_path: Path) -> None:
    nus_labels(tmp_path)
    for name in (*NUS_TRAIN[:2], *NUS_TEST):
        picture(tmp_path / by_number(name))
    data = open_dataset(tmp_path)
    assert len(data.train) == 2
    assert "1 pictures of TrainImagelist.txt are not on disk and left out." in data.notes


def test_the_csv_of_the_official_code_is_read(tmp_path: Path) -> None:
    nus_wide_csv(tmp_path)
    for path in (tmp_path, tmp_path / "nus_wid_data.csv"):
        data = open_dataset(path)
        assert data.val is not None
        assert data.labels == ("airport", "animal", "beach")
        assert data.task == "multi-label"
        assert (len(data.train), len(data.val)) == (3, 2)
        assert data.train.pictures.read(0) == (tmp_path / by_number_and_secret(NUS_TRAIN[0])).read_bytes()


def test_a_label_file_of_the_wrong_length_is_an_error(tmp_path: Path) -> None:
    nus_wide(tmp_path)
    write(tmp_path / "Groundtruth/TrainTestLabels/Labels_animal_Train.txt", "1\n0\n")
    with pytest.raises(DataError, match="for 3 pictures, got 2 numbers"):
        open_dataset(tmp_path)
