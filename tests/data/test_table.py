import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.data.cells import guess_separator, label_order, split_labels
from mldecoder.data.dataset import UNKNOWN, Dataset
from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.formats import column_a_label, json_lines, json_list, parquet, pets
from tests.data.picture_files import picture, write


def names_of(data: Dataset, i: int) -> set[str]:
    return {data.labels[j] for j in data.train.targets.positives(i)}


def test_a_list_of_breeds_is_single_label(tmp_path: Path) -> None:
    pets(tmp_path)
    for path in (tmp_path, tmp_path / "list.csv"):
        data = open_dataset(path)
        assert data.val is not None
        assert data.task == "single-label"
        assert data.labels == ("Abyssinian", "beagle", "pug")
        assert (len(data.train), len(data.val)) == (2, 2)
        assert data.train.targets.rows([0, 1]).tolist() == [[1, 0, 0], [0, 0, 1]]
        assert data.train.pictures.name(0) == "images/Abyssinian_1.jpg"
        assert "labels in column 'breed'" in data.description
        assert "exactly one of more than two" in data.description
    assert open_dataset(tmp_path, options={"task": "multi-label"}).task == "multi-label"


@pytest.mark.parametrize("separator", ["|", ";", ","])
@pytest.mark.parametrize("column", ["labels", "tags"])
def test_labels_in_one_column_are_split(tmp_path: Path, separator: str, column: str) -> None:
    for name in "abc":
        picture(tmp_path / f"{name}.jpg")
    cells = [separator.join(("hot dog", "cup")), "cup", ""]
    rows = "".join(f'{name}.jpg,"{cell}"\n' for name, cell in zip("abc", cells, strict=True))
    write(tmp_path / "photos.csv", f"path,{column}\n{rows}")
    data = open_dataset(tmp_path / "photos.csv")
    assert data.val is None
    assert data.task == "multi-label"
    assert data.labels == ("cup", "hot dog")
    assert data.train.targets.rows([0, 1, 2]).tolist() == [[1, 1], [1, 0], [0, 0]]
    assert f"split at {separator!r}" in data.description
    assert len(open_dataset(tmp_path, options={"drop_unlabelled": True}).train) == 2


def test_one_column_a_label_knows_yes_no_and_unknown(tmp_path: Path) -> None:
    data = open_dataset(column_a_label(tmp_path))
    assert data.labels == ("cat", "dog", "hot dog")
    assert data.train.targets.rows([0, 1]).tolist() == [[1, 0, UNKNOWN], [UNKNOWN, 1, 0]]
    assert data.notes[0] == "Columns not used: note."
    assert "one column a label (3)" in data.description


@pytest.mark.parametrize("make", [json_lines, json_list, parquet])
def test_json_lines_and_parquet_hold_lists(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    data = open_dataset(make(tmp_path))
    assert data.labels == ("x", "y")
    assert data.train.targets.rows([0, 1, 2]).tolist() == [[1, 1], [0, 0], [1, 0]]


def test_parquet_columns_of_numbers_with_gaps_are_unknown_there(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    picture(tmp_path / "a.jpg")
    pq.write_table(pa.table({"path": ["a.jpg", "a.jpg"], "x": [1, None], "y": [0.0, 1.0]}), tmp_path / "t.parquet")
    targets = open_dataset(tmp_path / "t.parquet").train.targets
    assert targets.rows([0, 1]).tolist() == [[1, 0], [UNKNOWN, 1]]


def test_train_and_val_tables_side_by_side_are_two_parts(tmp_path: Path) -> None:
    for name in "abc":
        picture(tmp_path / "images" / f"{name}.png")
    write(tmp_path / "train.csv", "image,label\na.png,x\nb.png,y\n")
    write(tmp_path / "val.csv", "image,label\nc.png,z\n")
    data = open_dataset(tmp_path)
    assert data.val is not None
    assert data.labels == ("x", "y", "z")
    assert data.val.targets.row(0).tolist() == [0, 0, 1]
    assert data.task == "single-label"


def test_a_test_part_beside_a_val_part_is_left_out_with_a_note(tmp_path: Path) -> None:
    picture(tmp_path / "a.jpg")
    rows = "".join(f"a.jpg,{label},{part}\n" for label, part in zip("xyz", ("train", "valid", "test"), strict=True))
    write(tmp_path / "t.csv", "path,class,set\n" + rows)
    data = open_dataset(tmp_path / "t.csv")
    assert data.val is not None
    assert data.val.targets.row(0).tolist() == [0, 1, 0]
    assert data.notes[0] == "The test part (1 pictures) is left out; data.options.val_part=test validates on it."
    other = open_dataset(tmp_path / "t.csv", options={"val_part": "test"}).val
    assert other is not None
    assert other.targets.row(0).tolist() == [0, 0, 1]


def test_a_flag_may_mark_the_validation_part(tmp_path: Path) -> None:
    picture(tmp_path / "a.jpg")
    write(tmp_path / "t.csv", "fname,labels,is_valid\na.jpg,x y,False\na.jpg,z,True\n")
    data = open_dataset(tmp_path / "t.csv")
    assert data.val is not None
    assert data.labels == ("x y", "z")  # a space is part of a name


def test_names_without_extension_and_other_folders_are_found(tmp_path: Path) -> None:
    picture(tmp_path / "elsewhere" / "17.jpg")
    write(tmp_path / "tables" / "t.tsv", "id\ttags\n17\tx;y\n")
    data = open_dataset(tmp_path / "tables" / "t.tsv", options={"images": str(tmp_path / "elsewhere")})
    assert isinstance(data.train.pictures.read(0), bytes)


def test_absolute_paths_work_from_anywhere(tmp_path: Path) -> None:
    path = picture(tmp_path / "far" / "a.jpg")
    write(tmp_path / "t.csv", f"path,labels\n{path},x\n")
    assert open_dataset(tmp_path / "t.csv").train.pictures.read(0) == path.read_bytes()


WRONG = {
    "no path column": ("x,y\n1,2\n", {}, "needs a column of picture paths .* it has x, y"),
    "no label column": ("path,width,height\na.jpg,10,20\n", {}, "needs a column of labels"),
    "no rows": ("path,label\n", {}, "has no rows"),
    "a row too long": ("path,label\na.jpg,x,y\n", {}, "Line 2 .* must have 2 cells"),
    "an empty path": ("path,label\na.jpg,x\n,y\n", {}, "Row 2 .* has no path"),
    "no label at all": ("path,label\na.jpg,\n", {}, "holds no label"),
    "a column that is not there": ("path,label\na.jpg,x\n", {"label_column": "lable"}, "Did you mean 'label'"),
    "single-label with two": ("path,labels\na.jpg,x|y\n", {"task": "single-label"}, "exactly one label a picture"),
    "an unknown part": ("path,label,part\na.jpg,x,holiday\n", {"split_column": "part"}, "got 'holiday'"),
    "only a test part": ("path,label,split\na.jpg,x,test\n", {}, "no rows to train on"),
    "the same column twice": ("path,label,label\na.jpg,x,y\n", {}, "different column names"),
    "pictures that are not there": ("path,label\nb.jpg,x\n", {}, r"such as 'b\.jpg'; looked in"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_table_is_one_clear_line(tmp_path: Path, case: str) -> None:
    text, options, message = WRONG[case]
    picture(tmp_path / "a.jpg")
    write(tmp_path / "t.csv", text)
    with pytest.raises(DataError, match=message) as error:
        open_dataset(tmp_path / "t.csv", options=options)
    assert "\n" not in str(error.value)


def test_several_tables_need_a_choice(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "path,label\n")
    write(tmp_path / "b.csv", "path,label\n")
    with pytest.raises(DataError, match=r"several tables \(a\.csv, b\.csv\)"):
        open_dataset(tmp_path)


NAME = st.text(st.characters(categories=["L", "Nd"], include_characters=" -_'"), min_size=1).map(str.strip).filter(bool)


@given(st.lists(st.lists(NAME, unique=True), min_size=1), st.sampled_from("|;,"))
def test_what_is_joined_is_split_again(lists: list[list[str]], mark: str) -> None:
    cells = [mark.join(names) for names in lists]
    guessed = guess_separator(cells)
    assert guessed == (mark if any(len(names) > 1 for names in lists) else None)
    assert [split_labels(cell, guessed) for cell in cells] == lists
    assert [split_labels(json.dumps(names), None) for names in lists] == lists
    assert [split_labels(str(names), None) for names in lists] == lists


def test_lists_without_quotes_and_numbers_are_understood() -> None:
    assert split_labels("[cat, hot dog]", None) == ["cat", "hot dog"]
    assert split_labels(3.0, None) == ["3"]
    assert label_order(["10", "9", "b", "a"]) == ("9", "10", "a", "b")
