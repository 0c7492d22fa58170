from pathlib import Path

import pytest

from mldecoder.data.dataset import UNKNOWN
from mldecoder.data.detect import open_dataset
from mldecoder.data.voc import LABELS
from mldecoder.errors import DataError
from tests.data.picture_files import picture, write

# Elements as in Annotations/000005.xml of VOC2007, http://host.robots.ox.ac.uk/pascal/VOC/voc2007/
OBJECT = """<object><name>{}</name><pose>Rear</pose><truncated>0</truncated><difficult>{}</difficult>
<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"""


def entry(root: Path, name: str, *objects: tuple[str, int]) -> None:
    picture(root / "JPEGImages" / f"{name}.jpg", seed=int(name[-3:]))
    inside = "".join(OBJECT.format(*one) for one in objects)
    text = f"<annotation><folder>VOC2007</folder><filename>{name}.jpg</filename>{inside}</annotation>"
    write(root / "Annotations" / f"{name}.xml", text)


def voc(root: Path) -> Path:
    year = root / "VOCdevkit" / "VOC2007"
    entry(year, "000005", ("chair", 0), ("chair", 1), ("sofa", 1))
    entry(year, "000007", ("car", 0))
    entry(year, "000012", ("person", 1))
    entry(year, "000001", ("dog", 0), ("person", 0))
    main = year / "ImageSets" / "Main"
    write(main / "trainval.txt", "000005\n000007\n000012\n")
    write(main / "train.txt", "000005\n000012\n")
    write(main / "val.txt", "000007\n")
    write(main / "test.txt", "000001\n")
    write(main / "car_trainval.txt", "000005 -1\n000007  1\n000012 -1\n")
    return year


@pytest.mark.parametrize("start", ["", "VOCdevkit", "VOCdevkit/VOC2007"])
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
    (voc(tmp_path) / "Annotations" / "000001.xml").unlink()
    data = open_dataset(tmp_path)
    assert data.val is not None
    assert (len(data.train), len(data.val)) == (2, 1)


def test_two_years_need_a_choice(tmp_path: Path) -> None:
    year = voc(tmp_path)
    entry(tmp_path / "VOCdevkit" / "VOC2012", "2008_000008", ("horse", 0))
    write(tmp_path / "VOCdevkit/VOC2012/ImageSets/Main/train.txt", "2008_000008\n")
    with pytest.raises(DataError, match=r"VOC2007, VOC2012\. Choose one with data\.year=2007"):
        open_dataset(tmp_path)
    assert len(open_dataset(tmp_path, options={"year": 2012}).train) == 1
    assert len(open_dataset(year).train) == 3


def test_a_damaged_or_missing_annotation_is_named(tmp_path: Path) -> None:
    year = voc(tmp_path)
    (year / "Annotations" / "000007.xml").write_text("<annotation>")
    with pytest.raises(DataError, match=r"000007\.xml must be XML"):
        open_dataset(tmp_path)
    (year / "Annotations" / "000007.xml").unlink()
    with pytest.raises(DataError, match=r"000007\.xml is missing"):
        open_dataset(tmp_path)
