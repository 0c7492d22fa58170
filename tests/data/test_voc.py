from pathlib import Path

import pytest

from mldecoder.data.dataset import UNKNOWN
from mldecoder.data.detect import open_dataset
from mldecoder.data.voc import LABELS
from mldecoder.errors import DataError
from tests.data.layouts import voc, voc_entry
from tests.data.picture_files import write

YEAR = "VOCdevkit/VOC2007"


@pytest.mark.parametrize("start", ["", "VOCdevkit", YEAR])
def test_difficult_objects_are_unknown_unless_another_is_not(tmp_path: Path, start: str) -> None:
    voc(tmp_path)
    data = open_dataset(tmp_path / start)
    assert data.val is not None
    assert data.labels == LABELS
    assert len(LABELS) == 20
    row = dict(zip(LABELS, data.train.targets.row(0).tolist(), strict=True))
    assert (row["chair"], row["sofa"], row["car"]) == (1, UNKNOWN, 0)
    assert data.train.targets.counts().unknown.sum() == 2
    assert (len(data.train), len(data.val)) == (3, 1)
    assert "found VOC2007/ImageSets/Main/trainval.txt and test.txt" in data.description
    assert data.train.pictures.name(0) == "JPEGImages/000005.jpg"
    assert isinstance(data.val.pictures.read(0), bytes)


def test_without_annotations_of_the_test_part_train_and_val_are_used(tmp_path: Path) -> None:
    (voc(tmp_path) / YEAR / "Annotations" / "000001.xml").unlink()
    data = open_dataset(tmp_path)
    assert data.val is not None
    assert (len(data.train), len(data.val)) == (2, 1)


def test_two_years_need_a_choice(tmp_path: Path) -> None:
    year = voc(tmp_path) / YEAR
    voc_entry(tmp_path / "VOCdevkit" / "VOC2012", "2008_000008", ("horse", 0))
    write(tmp_path / "VOCdevkit/VOC2012/ImageSets/Main/train.txt", "2008_000008\n")
    with pytest.raises(DataError, match=r"VOC2007, VOC2012\. Choose one with data\.options\.year=2007"):
        open_dataset(tmp_path)
    assert len(open_dataset(tmp_path, options={"year": 2012}).train) == 1
    assert len(open_dataset(year).train) == 3


def test_a_damaged_or_missing_annotation_is_named(tmp_path: Path) -> None:
    year = voc(tmp_path) / YEAR
    (year / "Annotations" / "000007.xml").write_text("<annotation>")
    with pytest.raises(DataError, match=r"000007\.xml must be XML"):
        open_dataset(tmp_path)
    (year / "Annotations" / "000007.xml").unlink()
    with pytest.raises(DataError, match=r"000007\.xml is missing"):
        open_dataset(tmp_path)
