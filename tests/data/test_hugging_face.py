from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mldecoder.data.decode import decode
from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.formats import hugging_face, saved
from tests.data.picture_files import picture

datasets: Any = pytest.importorskip("datasets")


def test_a_class_label_is_single_label(tmp_path: Path) -> None:
    data = open_dataset(hugging_face(tmp_path))
    assert data.val is not None
    assert data.task == "single-label"
    assert data.labels == ("cat", "dog")
    assert data.train.targets.rows([0, 1, 2]).tolist() == [[1, 0], [0, 1], [0, 1]]
    made = picture(tmp_path / "again.png", seed=1)
    assert np.array_equal(np.asarray(decode(data.train.pictures.read(1))), np.asarray(decode(made)))
    assert data.train.pictures.name(1).endswith("train1.png")


def test_a_list_of_class_labels_is_multi_label(tmp_path: Path) -> None:
    kind = datasets.Sequence(datasets.ClassLabel(names=["cat", "dog"]))
    data = open_dataset(saved(tmp_path, kind, [[0, 1], []], [[1]], name="objects"))
    assert data.task == "multi-label"
    assert data.train.targets.rows([0, 1]).tolist() == [[1, 1], [0, 0]]


def test_lists_of_words_are_multi_label(tmp_path: Path) -> None:
    kind = datasets.Sequence(datasets.Value("string"))
    data = open_dataset(saved(tmp_path, kind, [["b", "a"], ["c"]], [["a"]], name="tags"))
    assert data.labels == ("a", "b", "c")
    assert data.train.targets.row(0).tolist() == [1, 1, 0]


def test_a_folder_that_load_dataset_understands_is_opened_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for part, label in (("train", "x"), ("train", "y"), ("test", "x")):
        picture(tmp_path / "folder" / part / label / "1.png")
    data = open_dataset(f"hf:{tmp_path / 'folder'}")
    assert data.val is not None
    assert (len(data.train), len(data.val)) == (2, 1)
    assert data.labels == ("x", "y")


def test_what_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be loaded .* Check the name") as error:
        open_dataset(f"hf:{tmp_path / 'nothing'}")
    assert "\n" not in str(error.value)
    folder = saved(tmp_path, datasets.Value("string"), ["a"], ["b"])
    with pytest.raises(DataError, match=r"data\.options\.label_column must be a column"):
        open_dataset(folder, options={"label_column": "nope"})
