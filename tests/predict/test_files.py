"""Outputs on disk: every file exactly once, whenever the process was killed."""

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mldecoder.data.options import DataOptions
from mldecoder.data.table import read as read_table
from mldecoder.errors import ConfigError, DataError
from mldecoder.predict import Prediction, Predictor, Tag
from mldecoder.predict import output as output_module
from mldecoder.predict.files import tag_files
from mldecoder.predict.output import Format, Output
from tests.predict.pictures import scene, tiny, write_scenes

FORMATS: Sequence[Format] = ("json", "csv", "parquet")


def names_in(path: Path, format: Format) -> list[str]:
    """The files in an output, read as a user would read it."""
    if format == "json":
        return [json.loads(line)["path"] for line in path.read_text(encoding="utf-8").splitlines()]
    if format == "csv":
        with path.open(encoding="utf-8", newline="") as file:
            return [row["path"] for row in csv.DictReader(file)]
    names: list[str] = pq.read_table(path)["path"].to_pylist()
    return names


def broken_in(path: Path) -> list[str]:
    beside = path.with_name(path.name + ".broken.csv")
    if not beside.exists():
        return []
    with beside.open(encoding="utf-8", newline="") as file:
        return [row["path"] for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor(tiny(labels=("a", "b", 'c, "d"|e'), img_size=32), batch_size=4, threshold=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty pictures in a tree, three broken ones, and names that need care."""
    place = tmp_path_factory.mktemp("pictures")
    write_scenes(place, 14)
    for name in ("été.png", "猫.png", "a,b.png", 'quo"te.png', "new\nline.png", "part 0/a|b.png"):
        scene(0).save(place / name)
    with open(os.fsencode(place) + b"/\xff.png", "wb") as file:  # noqa: PTH123
        scene(1).save(file, "PNG")
    (place / "text.jpg").write_text("not a picture")
    (place / "part 1" / "empty.png").write_bytes(b"")
    (place / "new\nbroken.gif").write_bytes(b"GIF89a")
    return place


@pytest.mark.parametrize("format", FORMATS)
def test_every_file_is_in_the_output_once_and_broken_ones_are_beside_it(
    format: Format, predictor: Predictor, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "tags.out"
    summary = tag_files(predictor, [folder, folder / "part 0", folder / "text.jpg"], out, format)
    assert (summary.before, summary.tagged, summary.broken) == (0, 21, 3)
    assert len(set(names_in(out, format))) == len(names_in(out, format)) == 21
    assert {Path(name).name for name in broken_in(out)} == {"text.jpg", "empty.png", "new\nbroken.gif"}
    assert sum(name.endswith("\\xff.png") for name in names_in(out, format)) == 1
    again = tag_files(predictor, [folder], out, format)
    assert (again.before, again.tagged, again.broken) == (24, 0, 0)
    assert {path.name for path in tmp_path.iterdir()} == {
        "tags.out",
        "tags.out.broken.csv",
        "tags.out.settings.json",
    }


def test_the_three_formats_say_the_same(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    for format in FORMATS:
        tag_files(predictor, [folder], tmp_path / format, format)
    lines = [json.loads(line) for line in (tmp_path / "json").read_text(encoding="utf-8").splitlines()]
    table = pq.read_table(tmp_path / "parquet").to_pylist()
    with (tmp_path / "csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for line, entry, row in zip(lines, table, rows, strict=True):
        assert line["path"] == entry["path"] == row["path"]
        assert [tag["label"] for tag in line["tags"]] == entry["tags"]
        assert row["tags"].split("|") == [label.replace("|", "/") for label in entry["tags"]]
        assert [tag["score"] for tag in line["tags"]] == pytest.approx(entry["scores"], abs=1e-5)
        assert [float(score) for score in row["scores"].split("|")] == pytest.approx(entry["scores"], abs=1e-4)


def fake(name: str) -> Prediction:
    """A result without a model; names that begin with "bad" are broken."""
    error = 'broken, "quoted"\nand long' if name.startswith("bad") else None
    tags = () if error else (Tag("a", 0.5), Tag('b "c"\n', 0.25))
    return Prediction(name, tags, ("a", 'b "c"\n'), np.array([0.5, 0.25]), np.zeros(2), error)


def go_on(path: Path, format: Format, names: list[str]) -> None:
    """Write the names that are not there yet, three at a time."""
    with Output(path, format, {}) as out:
        left = [name for name in names if name not in out.done]
        for start in range(0, len(left), 3):
            out.write([fake(name) for name in left[start : start + 3]])


@pytest.mark.parametrize("format", ["json", "csv"])
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_output_torn_at_any_byte_is_mended(format: Format, tmp_path: Path, data: st.DataObject) -> None:
    names = [
        "a.png",
        "bad.png",
        "new\nline.png",
        'quo"te.png',
        "b,c.png",
        "bad\nline.png",
        "猫.png",
        "d.png",
        "e\r.png",
    ]
    whole_path, out = tmp_path / "whole", tmp_path / "torn"
    go_on(whole_path, format, names)
    for ending in ("", ".settings.json", ".broken.csv"):
        content = whole_path.with_name(f"whole{ending}").read_bytes()
        cut = len(content) if "settings" in ending else data.draw(st.integers(0, len(content)))
        out.with_name(f"torn{ending}").write_bytes(content[:cut])
    go_on(out, format, names)
    assert sorted(names_in(out, format)) == sorted(name for name in names if not name.startswith("bad"))
    assert sorted(broken_in(out)) == sorted(name for name in names if name.startswith("bad"))


def test_parquet_goes_on_after_whole_parts_and_throws_torn_ones_away(
    predictor: Predictor, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_module, "_ROWS", 4)
    out = tmp_path / "tags.parquet"
    calls = 0

    class Killed(BaseException):
        pass

    def kill(done: int, broken: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Killed

    monkeypatch.setattr(output_module._Parts, "close", lambda _: None)  # a killed process closes nothing
    with pytest.raises(Killed):
        tag_files(predictor, [folder], out, "parquet", advance=kill)
    monkeypatch.undo()
    assert 0 < len(names_in(out, "parquet")) < 21
    (out / ".part-000009.parquet").write_bytes(b"PAR1 torn")
    summary = tag_files(predictor, [folder], out, "parquet")
    assert summary.before > 0
    assert len(set(names_in(out, "parquet"))) == len(names_in(out, "parquet")) == 21
    assert not list(out.glob(".part*"))


def test_going_on_with_other_settings_is_refused(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "tags.csv"
    tag_files(predictor, [folder], out, "csv")
    other = Predictor(predictor.model, batch_size=4, threshold=0.0, top_k=1)
    with pytest.raises(ConfigError, match=r"begun with another top_k \(3, now 1\). Pass --overwrite"):
        tag_files(other, [folder], out, "csv")
    assert tag_files(other, [folder], out, "csv", overwrite=True).tagged == 21
    with pytest.raises(ConfigError, match="is a file, which --parquet cannot go on with"):
        tag_files(other, [folder], out, "parquet")
    foreign = tmp_path / "mine.csv"
    foreign.write_text("my own notes\n")
    with pytest.raises(ConfigError, match="was not written by this command"):
        tag_files(predictor, [folder], foreign, "csv")
    assert foreign.read_text() == "my own notes\n"


def test_two_processes_do_not_write_the_same_output(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "tags.csv"
    with Output(out, "csv", {}), pytest.raises(ConfigError, match="Another process is writing"):
        Output(out, "csv", {})


def test_nothing_to_tag_is_said_before_anything_is_written(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"There is no picture in .*empty"):
        tag_files(predictor, [tmp_path / "empty"], tmp_path / "tags.csv", "csv")
    with pytest.raises(DataError, match=r"There is no file or folder .*gone"):
        tag_files(predictor, [tmp_path / "gone"], tmp_path / "tags.csv", "csv")
    assert {path.name for path in tmp_path.iterdir()} == {"empty"}


def test_the_csv_can_be_trained_on(predictor: Predictor, tmp_path: Path) -> None:
    write_scenes(tmp_path / "pictures", 12)
    out = tmp_path / "tags.csv"
    tag_files(predictor, [tmp_path / "pictures"], out, "csv")
    dataset = read_table(out, DataOptions())
    assert len(dataset.train) == 12
    assert dataset.labels == ("a", "b", 'c, "d"/e')
