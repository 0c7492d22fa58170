from pathlib import Path

import pytest

from mldecoder.data.detect import FORMATS, DataOptions, open_dataset
from mldecoder.errors import ConfigError, DataError
from tests.data.picture_files import picture, write


def test_a_path_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match=r"photo does not exist\. Did you mean .*photos\?"):
        open_dataset(tmp_path / "photo")
    with pytest.raises(DataError, match="'scenes' is the embedded dataset"):
        open_dataset(tmp_path / "xyz")


def test_an_unknown_folder_is_told_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Looked for hf: .*coco: annotations/instances") as error:
        open_dataset(tmp_path)
    assert all(name in str(error.value) for name in FORMATS)
    with pytest.raises(DataError, match="no dataset of a known format"):
        open_dataset(write(tmp_path / "notes.txt", "nothing"))


def test_a_format_may_be_asked_for(tmp_path: Path) -> None:
    for name in ("a/1.jpg", "b/1.jpg"):
        picture(tmp_path / name)
    write(tmp_path / "list.csv", "path,label\na/1.jpg,x\n")
    assert open_dataset(tmp_path).format == "table"
    assert open_dataset(tmp_path, format="folders").labels == ("a", "b")
    with pytest.raises(DataError, match="not of the format coco"):
        open_dataset(tmp_path, format="coco")
    with pytest.raises(ConfigError, match="Did you mean 'folders'"):
        open_dataset(tmp_path, format="folder")


def test_wrong_options_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Unknown data option 'drop_unlabeled'\. Did you mean 'drop_unlabelled'"):
        open_dataset("scenes", options={"drop_unlabeled": True})
    with pytest.raises(ConfigError, match=r"data\.options\.task must be one of multi-label, single-label, got 'both'"):
        open_dataset("scenes", options={"task": "both"})
    with pytest.raises(ConfigError, match=r"data\.options\.count must be 1 or more, got 0"):
        DataOptions(count=0)
    with pytest.raises(DataError, match=r"data\.options\.images must be a folder"):
        open_dataset(tmp_path, options={"images": "nowhere"})
    with pytest.raises(ConfigError, match=r"data\.options\.drop_unlabelled must be true or false, got 'yes'"):
        DataOptions.of({"drop_unlabelled": "yes"})
    with pytest.raises(ConfigError, match=r"data\.options\.year must be a whole number, got 'x'"):
        DataOptions.of({"year": "x"})
