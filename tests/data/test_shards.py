import json
from pathlib import Path

import pytest

from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.formats import jpeg, shard, shards
from tests.data.picture_files import write


def test_shards_with_class_numbers_are_single_label(tmp_path: Path) -> None:
    data = open_dataset(shards(tmp_path))
    assert data.val is not None
    assert data.task == "single-label"
    assert data.labels == ("tench", "goldfish", "shark")
    assert (len(data.train), len(data.val)) == (6, 1)
    for i in (5, 0, 3):
        assert data.train.pictures.read(i) == jpeg(tmp_path, i)
    assert data.train.targets.positives(5).tolist() == [0]
    assert data.train.pictures.name(5) == "imagenet-train-000002.tar/21.jpg"
    assert "4 shards" in data.description
    few = open_dataset(str(tmp_path / "shards" / "imagenet-train-{000000..000001}.tar"))
    assert len(few.train) == 4
    with pytest.raises(DataError, match=r"imagenet-train-000003\.tar is missing \(1 of 4 are\)"):
        open_dataset(str(tmp_path / "shards" / "imagenet-train-{000000..000003}.tar"))


def test_labels_may_stand_in_json_or_text(tmp_path: Path) -> None:
    image = jpeg(tmp_path, 0)
    for i, (kind, first, second) in enumerate(
        [
            ("json", json.dumps({"labels": ["cat", "hot dog"]}), "{}"),
            ("txt", "cat\nhot dog\n", ""),
            ("txt", "cat|hot dog", ""),
        ]
    ):
        members = {"x/a.jpg": image, f"x/a.{kind}": first.encode(), "x/b.PNG": image, f"x/b.{kind}": second.encode()}
        data = open_dataset(shard(tmp_path / f"{i}.tar", members))
        assert data.task == "multi-label"
        assert data.labels == ("cat", "hot dog")
        assert data.train.targets.rows([0, 1]).tolist() == [[1, 1], [0, 0]]


def test_parts_may_be_folders(tmp_path: Path) -> None:
    for part, label in (("train", "a"), ("val", "b")):
        shard(tmp_path / "d" / part / "000.tar", {"1.jpg": jpeg(tmp_path, 1), "1.txt": label.encode()})
    data = open_dataset(tmp_path / "d")
    assert data.val is not None
    assert data.val.targets.row(0).tolist() == [0, 1]


def test_wrong_shards_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="need labels beside them"):
        open_dataset(shard(tmp_path / "a.tar", {"1.jpg": b"x"}))
    with pytest.raises(DataError, match="holds no pictures"):
        open_dataset(shard(tmp_path / "b.tar", {"1.txt": b"x"}))
    with pytest.raises(DataError, match="uncompressed tar file"):
        open_dataset(write(tmp_path / "c.tar", "not a tar file" * 100))
    with pytest.raises(DataError, match=r"json beside 1\.jpg"):
        open_dataset(shard(tmp_path / "d.tar", {"1.jpg": b"x", "1.json": b"{"}))
