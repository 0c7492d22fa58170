from pathlib import Path

import pytest

from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.layouts import coco, instances
from tests.data.picture_files import picture


@pytest.mark.parametrize("below", ["", "images"])
def test_coco_is_found_and_labels_are_ordered_by_id(tmp_path: Path, below: str) -> None:
    data = open_dataset(coco(tmp_path / "coco", below=below))
    assert data.val is not None
    assert data.labels == ("person", "stop sign", "toothbrush")
    assert data.train.targets.rows([0, 1, 2]).tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert data.val.targets.rows([0, 1]).tolist() == [[0, 0, 1], [0, 0, 0]]
    assert data.description == (
        "COCO, 3 + 2 pictures, 3 labels, multi-label, "
        "found annotations/instances_train2014.json, annotations/instances_val2014.json"
    )
    assert data.notes == (
        "2 pictures have no label (kept as negatives; data.options.drop_unlabelled=true drops them).",
    )
    prefix = f"{below}/" if below else ""
    assert data.train.pictures.name(0) == f"{prefix}train2014/COCO_train2014_000000000009.jpg"
    assert isinstance(data.train.pictures.read(2), bytes)


def test_pictures_without_labels_are_dropped_as_the_official_code_does(tmp_path: Path) -> None:
    data = open_dataset(coco(tmp_path), options={"drop_unlabelled": True})
    assert data.val is not None
    assert (len(data.train), len(data.val)) == (2, 1)  # 82,081 and 40,137 of the real ones
    assert data.train.pictures.name(1).endswith("30.jpg")


def test_two_years_need_a_choice(tmp_path: Path) -> None:
    coco(tmp_path, "2014")
    coco(tmp_path, "2017")
    with pytest.raises(DataError, match=r"2014 and 2017\. Choose one with data\.options\.year=2017"):
        open_dataset(tmp_path)
    assert "train2017" in open_dataset(tmp_path, options={"year": 2017}).train.pictures.name(0)


def test_one_file_is_a_training_part(tmp_path: Path) -> None:
    coco(tmp_path)
    data = open_dataset(tmp_path / "annotations" / "instances_train2014.json")
    assert data.val is None
    assert len(data.train) == 3


def test_exports_with_annotations_beside_the_pictures_are_read(tmp_path: Path) -> None:
    for part in ("train", "valid"):
        picture(tmp_path / part / "a.jpg")
        instances(tmp_path / part / "_annotations.coco.json", ["a.jpg"], {0: [1]})
    data = open_dataset(tmp_path)
    assert data.val is not None
    assert data.val.pictures.name(0) == "valid/a.jpg"


def test_missing_pictures_say_where_was_looked(tmp_path: Path) -> None:
    instances(tmp_path / "annotations/instances_train2014.json", ["a.jpg"], {0: [1]})
    with pytest.raises(DataError, match=r"such as 'a\.jpg'; looked in .*train2014.*data\.options\.images=FOLDER"):
        open_dataset(tmp_path)


def test_a_damaged_annotation_file_is_one_line(tmp_path: Path) -> None:
    coco(tmp_path)
    file = tmp_path / "annotations/instances_train2014.json"
    file.write_text(file.read_text()[:-40])
    with pytest.raises(DataError, match="must be a COCO file in JSON"):
        open_dataset(tmp_path)
    file.write_text('{"images": [], "annotations": []}')
    with pytest.raises(DataError, match="'categories' is missing"):
        open_dataset(tmp_path)
