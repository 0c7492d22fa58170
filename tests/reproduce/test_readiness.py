"""Counts of folders beside those that are stated; the folders are made small, and what is stated with them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from mldecoder.errors import ConfigError
from mldecoder.reproduce import find_table
from mldecoder.reproduce.choose import inner_split
from mldecoder.reproduce.readiness import check_data
from mldecoder.reproduce.sources import SOURCES, Source


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)


def coco(root: Path, train: int, val: int, labels: int = 3) -> Path:
    """A COCO folder of 2014; the last picture of each part has no label."""
    (root / "annotations").mkdir(parents=True)
    categories = [{"id": 2 * i + 1, "name": f"thing {i}"} for i in range(labels)]
    for part, count in (("train", train), ("val", val)):
        names = [f"COCO_{part}2014_{i:012d}.jpg" for i in range(count)]
        for name in names:
            picture(root / f"{part}2014" / name)
        images = [{"id": i, "file_name": name} for i, name in enumerate(names)]
        notes = [{"id": i, "image_id": i, "category_id": 2 * (i % labels) + 1} for i in range(count - 1)]
        content = {"images": images, "annotations": notes, "categories": categories}
        (root / "annotations" / f"instances_{part}2014.json").write_text(json.dumps(content))
    return root


@pytest.fixture
def stated(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, int, int], None]:
    """Let other numbers be stated of a dataset."""

    def state(name: str, train: int, val: int, labels: int) -> None:
        old: Source = SOURCES[name]
        new = replace(
            old,
            train=replace(old.train, number=train),
            val=replace(old.val, number=val),
            labels=replace(old.labels, number=labels),
        )
        monkeypatch.setattr("mldecoder.reproduce.readiness.SOURCES", {**SOURCES, name: new})

    return state


def test_the_stated_counts_are_those_of_the_paper() -> None:
    counts = {name: (one.train.number, one.val.number, one.labels.number) for name, one in SOURCES.items()}
    assert counts["coco"] == (82_081, 40_137, 80)
    assert counts["voc"] == (5_011, 4_952, 20)
    assert counts["nus-wide"][2] == 925 + 81
    assert [count.number for count in SOURCES["nus-wide"].held_out] == [925, 81]
    assert counts["open-images"][1:] == (41_620, 9_600)
    assert counts["imagenet"] == (1_281_167, 50_000, 1_000)
    assert all(one.get and one.layout for one in SOURCES.values())


def test_a_folder_with_everything_is_ready(tmp_path: Path, stated: Callable[[str, int, int, int], None]) -> None:
    stated("coco", 5, 2, 3)
    found = check_data(find_table("heads-coco"), coco(tmp_path / "coco", 6, 3))
    assert found.ready
    assert [(check.found, check.verdict) for check in found.checks] == [(n, "as stated") for n in (5, 2, 3)]


def test_a_part_of_the_data_is_counted_and_not_ready(tmp_path: Path) -> None:
    found = check_data(find_table("heads-coco"), coco(tmp_path / "coco", 6, 3))
    assert not found.ready
    assert [check.verdict for check in found.checks] == ["82,076 too few", "40,135 too few", "77 too few"]
    assert not found.missing


def test_pictures_that_are_not_on_disk_are_named(tmp_path: Path, stated: Callable[[str, int, int, int], None]) -> None:
    stated("coco", 5, 2, 3)
    root = coco(tmp_path / "coco", 6, 3)
    (root / "train2014" / "COCO_train2014_000000000003.jpg").unlink()
    found = check_data(find_table("heads-coco"), root)
    assert not found.ready
    assert found.missing == ("1 of 5 training pictures are not on disk: train2014/COCO_train2014_000000000003.jpg.",)


def test_a_folder_of_something_else_says_what_was_looked_for(tmp_path: Path) -> None:
    found = check_data(find_table("voc"), tmp_path)
    assert not found.ready
    assert not found.found
    assert [check.verdict for check in found.checks] == ["not there"] * 3
    assert "holds no dataset of a known format" in found.missing[0]
    assert "VOCdevkit/VOC2007" in found.missing[1]


def test_class_folders_are_counted(tmp_path: Path, stated: Callable[[str, int, int, int], None]) -> None:
    stated("imagenet", 4, 2, 2)
    for part, count in (("train", 2), ("val", 1)):
        for label in ("n01", "n02"):
            for i in range(count):
                picture(tmp_path / part / label / f"{i}.jpg")
    assert check_data(find_table("imagenet-heads"), tmp_path).ready
    picture(tmp_path / "train" / "n02" / "more.jpg")
    found = check_data(find_table("imagenet-heads"), tmp_path)
    assert found.checks[0].verdict == "more than stated"


def test_seen_and_unseen_labels_of_nus_wide_are_counted(tmp_path: Path) -> None:
    (tmp_path / "ImageList").mkdir()
    (tmp_path / "NUS_WID_Tags").mkdir()
    (tmp_path / "ConceptsList").mkdir()
    (tmp_path / "ConceptsList" / "Concepts81.txt").write_text("cat\ndog\n")
    (tmp_path / "NUS_WID_Tags" / "TagList1k.txt").write_text("sky\ncat\nsea\ntree\n")
    for part, count in (("Train", 3), ("Test", 2)):
        names = [f"actor\\{part}_{i}.jpg" for i in range(count)]
        (tmp_path / "ImageList" / f"{part}Imagelist.txt").write_text("\n".join(names) + "\n")
        for name in names:
            picture(tmp_path / "Flickr" / name.replace("\\", "/"))
        (tmp_path / "NUS_WID_Tags" / f"{part}_Tags1k.dat").write_text("1 0 0 1\n" * count)
        (tmp_path / "NUS_WID_Tags" / f"{part}_Tags81.txt").write_text("1 0\n" * count)
    found = check_data(find_table("nus-wide-zsl"), tmp_path)
    counted = {check.what: check.found for check in found.checks}
    assert counted == {
        "training pictures": 3,
        "validation pictures": 2,
        "labels": 5,
        "seen labels": 3,
        "unseen labels": 2,
    }


def test_a_table_without_data_has_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="throughput needs no data"):
        check_data(find_table("throughput"), tmp_path)


def test_the_inner_split_never_sees_the_validation_part(tmp_path: Path) -> None:
    from mldecoder.data.detect import open_dataset

    root = coco(tmp_path / "coco", 20, 5)
    inner = inner_split(root, tmp_path / "inner" / "coco")
    dataset = open_dataset(inner)
    assert dataset.val is not None
    parts = [{part.pictures.name(i) for i in range(len(part))} for part in (dataset.train, dataset.val)]
    names = [{Path(name).name for name in part} for part in parts]
    assert (len(names[0]), len(names[1])) == (16, 4)
    assert not names[0] & names[1]
    assert names[0] | names[1] == {file.name for file in (root / "train2014").iterdir()}
    assert dataset.train.pictures.read(0)
    assert dataset.val.pictures.read(0)
    again = open_dataset(inner_split(root, tmp_path / "inner" / "coco"))
    assert again.val is not None
    assert again.val.pictures.name(0) == dataset.val.pictures.name(0)


def test_the_inner_split_is_for_coco_folders(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--choose needs a COCO folder"):
        inner_split(tmp_path, tmp_path / "inner")
