from pathlib import Path

import pytest

from mldecoder.data.dataset import UNKNOWN
from mldecoder.data.detect import open_dataset
from mldecoder.data.nus_wide import flickr_id
from mldecoder.errors import DataError
from tests.data.picture_files import picture, write

# Folders, file names and separators as in the archives Groundtruth, ImageList, ConceptsList and NUS_WID_Tags of
# https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html (fewer labels and pictures).
CONCEPTS = ["airport", "animal", "beach"]
TAGS = ["nature", "beach", "sky", "interestingness"]
TRAIN = ["actor\\0001_2124494179.jpg", "zebra\\0002_1701420169.jpg", "tower\\0003_381708603.jpg"]
TEST = ["dog\\0009_249918118.jpg", "cat\\0010_2635942202.jpg"]
TRUTH = {"Train": ["100", "011", "000"], "Test": ["010", "001"]}
USERS = {"Train": ["0100", "1010", "0001"], "Test": ["1000", "0110"]}


def labels(root: Path, *, truth: bool = True) -> Path:
    write(root / "ImageList/TrainImagelist.txt", "".join(f"{name}\r\n" for name in TRAIN))
    write(root / "ImageList/TestImagelist.txt", "".join(f"{name}\r\n" for name in TEST))
    write(root / "ConceptsList/Concepts81.txt", "\n".join(CONCEPTS) + "\n")
    write(root / "NUS_WID_Tags/TagList1k.txt", "\n".join(TAGS) + "\n")
    for part in ("Train", "Test"):
        for j, concept in enumerate(CONCEPTS):
            if truth:
                path = root / f"Groundtruth/TrainTestLabels/Labels_{concept}_{part}.txt"
                write(path, "".join(f"{row[j]}\n" for row in TRUTH[part]))
        write(root / f"NUS_WID_Tags/{part}_Tags81.txt", "".join(" ".join(row) + " \n" for row in TRUTH[part]))
        write(root / f"NUS_WID_Tags/{part}_Tags1k.dat", "".join("\t".join(row) + "\t\n" for row in USERS[part]))
    return root


def as_listed(name: str) -> str:
    return "Flickr/" + name.replace("\\", "/")


def flat(name: str) -> str:
    return "images/" + name.rpartition("\\")[2]


def by_number(name: str) -> str:
    return f"images/{flickr_id(name)}.jpg"


def by_number_and_secret(name: str) -> str:
    return f"images/98796_{flickr_id(name)}_f86eb60ccf_m.jpg"


NAMINGS = [as_listed, flat, by_number, by_number_and_secret]


@pytest.mark.parametrize("naming", NAMINGS)
def test_every_naming_found_in_the_wild_is_resolved(tmp_path: Path, naming: object) -> None:
    assert callable(naming)
    labels(tmp_path)
    for i, name in enumerate(TRAIN + TEST):
        picture(tmp_path / naming(name), seed=i)
    data = open_dataset(tmp_path)
    assert data.val is not None
    assert data.labels == tuple(CONCEPTS)
    assert data.train.targets.rows([0, 1, 2]).tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert data.val.targets.rows([0, 1]).tolist() == [[0, 1, 0], [0, 0, 1]]
    for i, name in enumerate(TRAIN):
        assert data.train.pictures.read(i) == (tmp_path / naming(name)).read_bytes()


def pictures(root: Path) -> None:
    for i, name in enumerate(TRAIN + TEST):
        picture(root / as_listed(name), seed=i)


def test_the_925_tags_are_those_that_are_no_concepts(tmp_path: Path) -> None:
    pictures(labels(tmp_path))
    data = open_dataset(tmp_path, options={"nus_labels": "925"})
    assert data.labels == ("nature", "sky", "interestingness")
    assert data.train.targets.rows([0, 1, 2]).tolist() == [[0, 0, 0], [1, 1, 0], [0, 0, 1]]


def test_all_1006_labels_leave_the_81_unknown_in_training(tmp_path: Path) -> None:
    pictures(labels(tmp_path))
    data = open_dataset(tmp_path, options={"nus_labels": "1006"})
    assert data.val is not None
    assert data.labels == ("nature", "sky", "interestingness", *CONCEPTS)
    assert data.train.targets.row(1).tolist() == [1, 1, 0, UNKNOWN, UNKNOWN, UNKNOWN]
    assert data.val.targets.row(1).tolist() == [0, 1, 0, 0, 0, 1]


def test_without_ground_truth_users_tags_stand_in_and_a_note_says_so(tmp_path: Path) -> None:
    pictures(labels(tmp_path, truth=False))
    data = open_dataset(tmp_path)
    assert data.train.targets.row(0).tolist() == [1, 0, 0]
    assert any("users' tags" in note for note in data.notes)


def test_pictures_that_are_not_on_disk_are_counted(tmp_path: Path) -> None:
    labels(tmp_path)
    for name in (*TRAIN[:2], *TEST):
        picture(tmp_path / by_number(name))
    data = open_dataset(tmp_path)
    assert len(data.train) == 2
    assert "1 pictures of TrainImagelist.txt are not on disk and left out." in data.notes


def test_the_csv_of_the_official_code_is_read(tmp_path: Path) -> None:
    # header and cells as in nus_wid_data.csv of ASL and ML-Decoder: labels are a list in Python's spelling
    rows = [f"images/{name.rpartition(chr(92))[2]},\"['animal', 'beach']\",train" for name in TRAIN]
    rows += [f"images/{name.rpartition(chr(92))[2]},['airport'],val" for name in TEST]
    write(tmp_path / "nus_wid_data.csv", "filepath,label,split_name\n" + "\n".join(rows) + "\n")
    for i, name in enumerate(TRAIN + TEST):
        picture(tmp_path / by_number_and_secret(name), seed=i)
    for path in (tmp_path, tmp_path / "nus_wid_data.csv"):
        data = open_dataset(path)
        assert data.val is not None
        assert data.labels == ("airport", "animal", "beach")
        assert data.task == "multi-label"
        assert (len(data.train), len(data.val)) == (3, 2)
        assert data.train.pictures.read(0) == (tmp_path / by_number_and_secret(TRAIN[0])).read_bytes()


def test_a_label_file_of_the_wrong_length_is_an_error(tmp_path: Path) -> None:
    pictures(labels(tmp_path))
    write(tmp_path / "Groundtruth/TrainTestLabels/Labels_animal_Train.txt", "1\n0\n")
    with pytest.raises(DataError, match="for 3 pictures, got 2 numbers"):
        open_dataset(tmp_path)
