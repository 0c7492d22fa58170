from pathlib import Path

import pytest

from mldecoder.data.dataset import UNKNOWN, Dataset, Files, ImageSet, Targets
from mldecoder.data.detect import open_dataset
from mldecoder.data.summary import summarise
from tests.data.picture_files import picture


def flawed(tmp_path: Path) -> Dataset:
    """A missing and a broken training picture; one validation picture by name and one by content in training too."""
    for i in range(4):
        picture(tmp_path / f"{i}.png", seed=i)
    (tmp_path / "2.png").write_bytes(b"")
    (tmp_path / "3.png").unlink()
    picture(tmp_path / "copy.png", seed=0)
    picture(tmp_path / "own.png", seed=9)
    labels = ("a", "b", "never")
    train = Targets.from_lists([[0], [0, 1], [1], []], unknown=[[1], [], [], []], num_classes=3)
    val = Targets.from_lists([[0], [1], [0]], num_classes=3, default=UNKNOWN)
    return Dataset(
        ImageSet(Files(tmp_path, [f"{i}.png" for i in range(4)]), train, labels),
        ImageSet(Files(tmp_path, ["copy.png", "1.png", "own.png"]), val, labels),
        "flawed", "table", "a flawed set",
    )  # fmt: skip


def test_a_summary_counts_labels_and_names_what_is_wrong(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    summary = summarise(flawed(tmp_path), progress=lambda done, total: calls.append((done, total)))
    train, val = summary.parts
    assert (train.images, val.images) == (4, 3)
    assert train.labels_per_image == 1.0
    assert train.most_labels == 2
    assert train.unlabelled == 1
    assert train.unknown == pytest.approx(1 / 12)
    assert train.positives.tolist() == [2, 2, 0]
    assert train.negatives.tolist() == [2, 1, 4]
    assert train.without_positives == ("never",)
    assert train.missing == ("3.png",)
    assert train.broken == (("2.png", "zero bytes"),)
    assert val.unknown == pytest.approx(6 / 9)
    assert summary.same_file == ("1.png",)
    assert summary.same_content == (("0.png", "copy.png"), ("1.png", "1.png"))
    assert calls[-1] == (7, 7)
    assert summary.problems() == [
        "1 files of the train part are missing: 3.png",
        "1 files of the train part are broken: 2.png (zero bytes)",
        "1 labels never occur in the train part: never",
        "1 labels never occur in the val part: never",
        "1 pictures stand in both the training and the validation part: 1.png",
        "2 pictures of the validation part have the content of a training picture: 0.png = copy.png, 1.png = 1.png",
    ]


def test_files_are_left_alone_or_sampled_if_asked(tmp_path: Path) -> None:
    data = flawed(tmp_path)
    untouched = summarise(data, check_files=False)
    assert untouched.parts[0].checked == 0
    assert untouched.parts[0].missing == ()
    assert untouched.same_file == ("1.png",)  # by name, without reading
    assert summarise(data, check_files=2).parts[0].checked == 2


def test_a_set_without_validation_part_is_summarised() -> None:
    data = open_dataset("scenes", options={"count": 10})
    alone = Dataset(data.train, None, "x", "scenes", "")
    assert len(summarise(alone).parts) == 1
    whole = summarise(data)
    assert whole.same_content == ()
    assert all("never occur" in line for line in whole.problems())
