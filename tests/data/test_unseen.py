import json
from pathlib import Path

import numpy as np
import pytest

from mldecoder.data import scenes
from mldecoder.data.dataset import ImageSet, Targets
from mldecoder.data.detect import open_dataset
from mldecoder.data.pictures import Arrays
from mldecoder.data.unseen import hold_out, named_labels
from mldecoder.errors import ConfigError

SPLITS = {"one": {"seen": ["ant"], "unseen": ["bee"]}, "two": ["cow", "ant"]}


def animals() -> ImageSet:
    targets = Targets.from_lists([[0], [1, 2], [2]], num_classes=3)
    return ImageSet(Arrays(np.zeros((3, 4, 4, 3), np.uint8), prefix=""), targets, ("ant", "bee", "cow"))


def test_labels_are_named_by_a_list_a_file_or_an_entry_of_a_file(tmp_path: Path) -> None:
    text, listed, split = tmp_path / "a.txt", tmp_path / "b.json", tmp_path / "c.json"
    text.write_text("cow\n\n bee \n")
    listed.write_text(json.dumps(["bee"]))
    split.write_text(json.dumps(SPLITS))
    assert named_labels(["cow", "ant"], animals()) == ("ant", "cow")  # in the order of the data
    assert named_labels(str(text), animals()) == ("bee", "cow")
    assert named_labels(str(listed), animals()) == ("bee",)
    assert named_labels(f"{split}#one", animals()) == ("bee",)
    assert named_labels(f"{split}#two", animals()) == ("ant", "cow")


def test_the_split_of_scenes_has_a_name() -> None:
    train = open_dataset("scenes", options={"count": 5}).train
    assert named_labels("scenes", train) == scenes.UNSEEN


def test_nus_wide_holds_out_what_is_unknown_throughout_training() -> None:
    targets = Targets.from_lists([[0], [0]], num_classes=2, unknown=[[1], [1]])
    train = ImageSet(Arrays(np.zeros((2, 4, 4, 3), np.uint8), prefix=""), targets, ("tag", "concept"))
    assert named_labels("nus-wide", train) == ("concept",)
    with pytest.raises(ConfigError, match=r"Set data.options.nus_labels=1006"):
        named_labels("nus-wide", animals())


def test_training_sees_the_seen_labels_alone_and_validation_all() -> None:
    train, val = hold_out(animals(), animals(), ("ant",))
    assert train.labels == ("bee", "cow")
    assert val.labels == ("bee", "cow", "ant")
    assert train.targets.rows([0, 1, 2]).tolist() == [[0, 0], [1, 1], [0, 1]]
    assert val.targets.row(0).tolist() == [0, 0, 1]
    assert len(train) == 3  # the picture of an ant stays, without a label


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (["bea"], "data.unseen must name labels of the data, got 'bea'. Did you mean 'bee'"),
        (["ant", "bee", "cow"], "leave some to train, got 3 of 3"),
        ([], "got 0 of 3"),
        ("nowhere.txt", "a list of labels, scenes, nus-wide or a file, got 'nowhere.txt'"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(wish: str | list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        named_labels(wish, animals())


def test_a_json_file_must_have_the_entry(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(SPLITS))
    with pytest.raises(ConfigError, match="has no entry 'three', it has one, two"):
        named_labels(f"{file}#three", animals())
    with pytest.raises(ConfigError, match=r"say which entry of .* as in c\.json#one"):
        named_labels(str(file), animals())
    file.write_text("{")
    with pytest.raises(ConfigError, match="not valid JSON"):
        named_labels(str(file), animals(), "data.leave_out")
