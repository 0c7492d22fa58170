import json
from pathlib import Path

import pytest
from PIL import Image

from mldecoder.cli.data import bar
from mldecoder.data.balance import plot_balance
from mldecoder.data.detect import open_dataset
from mldecoder.data.summary import summarise
from mldecoder.errors import ConfigError
from tests.cli import run
from tests.data.picture_files import picture, write


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A table with a broken, a missing and a doubled picture."""
    for i in range(6):
        picture(tmp_path / f"{i}.png", seed=i)
    (tmp_path / "2.png").write_bytes(b"no picture")
    picture(tmp_path / "copy.png", seed=0)
    rows = ["0.png,cat,train", "1.png,cat|dog[b],train", "2.png,dog[b],train", "3.png,,train", "gone.png,cat,train"]
    rows += ["copy.png,cat,val", "4.png,dog[b],val"]
    return write(tmp_path / "photos.csv", "\n".join(["path,labels,split", *rows]) + "\n")


def test_a_dataset_is_described_with_all_that_is_wrong_with_it(photos: Path) -> None:
    result = run("data", str(photos), "--option", "separator=|")
    assert result.returncode == 0, result.stderr
    lines = [" ".join(line.replace("│", " ").split()) for line in result.stdout.splitlines()]
    assert lines[0].startswith("Data: table, 5 + 2 pictures, 2 labels, multi-label, found")
    assert "pictures 5 2" in lines
    assert "labels a picture 1.00 1.00" in lines
    assert "pictures without label 1 0" in lines
    assert "missing files 1 0" in lines
    assert "broken files 1 0" in lines
    assert f"cat 3 1 60.0% {'█' * 24}" in lines
    assert f"dog[b] 2 1 40.0% {'█' * 16}" in lines
    assert "- 1 files of the train part are missing: gone.png" in lines
    assert any(line.startswith("- 1 files of the train part are broken: 2.png (") for line in lines)
    assert any("have the content of a training picture: 0.png = copy.png" in line for line in lines)


def test_json_holds_every_count_and_name(photos: Path) -> None:
    found = json.loads(run("data", str(photos), "--option", "separator=|", "--json").stdout)
    train, val = found["parts"]
    assert (train["images"], val["images"], found["labels"]) == (5, 2, ["cat", "dog[b]"])
    assert train["positives"] == {"dog[b]": 2, "cat": 3}
    assert train["missing"] == ["gone.png"]
    assert [entry["name"] for entry in train["broken"]] == ["2.png"]
    assert found["same_content"] == [{"train": "0.png", "val": "copy.png"}]
    assert len(found["problems"]) == 3


def test_files_are_not_read_where_that_is_not_wished(photos: Path) -> None:
    result = run("data", str(photos), "--option", "separator=|", "--no-check")
    assert "not read" in result.stdout
    assert "are broken" not in result.stdout


def test_of_many_labels_the_ends_are_shown_and_the_plot_is_written(tmp_path: Path) -> None:
    plot = tmp_path / "balance.png"
    result = run("data", "scenes", "--option", "count=30", "--rows", "4", "--plot", str(plot))
    assert "... 32 more" in result.stdout
    assert f"Class balance drawn in {plot}." in result.stdout
    with Image.open(plot) as drawn:
        assert min(drawn.size) > 300


def test_thousands_of_labels_are_drawn_as_curves(tmp_path: Path) -> None:
    rows = [f"{i}.png,l{i}|l0" for i in range(100)]
    photos = write(tmp_path / "photos.csv", "\n".join(["path,labels", *rows]) + "\n")
    picture(tmp_path / "0.png")
    summary = summarise(open_dataset(photos, options={"separator": "|"}), check_files=False)
    assert len(summary.labels) > 60
    plot_balance(summary, tmp_path / "balance.svg")
    assert "rank of the label" in (tmp_path / "balance.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere does not exist. 'scenes' is the embedded dataset."),
        (["scenes", "--option", "count"], "--option takes key=value, such as drop_unlabelled=true, got 'count'."),
        (["scenes", "--option", "coutn=3"], "Unknown data option 'coutn'. Did you mean 'count'?"),
        (["scenes", "--option", "count=many"], "data.options.count must be a whole number, got 'many'."),
        (["scenes", "--plot", "balance.txt"], "A plot is a .png, .svg, .pdf file, got 'balance.txt'."),
        (["scenes", "--plot", "no/where/balance.png"], "There is no folder no/where for the plot."),
        (["scenes", "--format", "coca"], "Did you mean 'coco'?"),
        (["scenes", "--rows", "1"], "'--rows'"),
        ([], "Missing argument"),
    ],
)
def test_a_wrong_word_is_one_clear_line(words: list[str], message: str) -> None:
    result = run("data", *words)
    assert result.returncode != 0
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_plot_file_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    summary = summarise(open_dataset("scenes", options={"count": 5}), check_files=False)
    with pytest.raises(ConfigError, match="A plot is a"):
        plot_balance(summary, tmp_path / "balance.docx")


def test_a_bar_is_exact_to_an_eighth_and_shows_whatever_there_is() -> None:
    assert bar(1.0, width=3) == "███"
    assert bar(0.5, width=3) == "█▌"
    assert bar(1e-9, width=3) == "▏"
    assert bar(0.0, width=3) == ""
