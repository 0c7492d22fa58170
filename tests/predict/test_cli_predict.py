"""``mldecoder predict`` as a user runs it."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from mldecoder.cli.predict import predict
from mldecoder.errors import MLDecoderError
from tests.cli import command, environment, run
from tests.predict.pictures import scene, tiny, write_scenes
from tests.predict.test_files import broken_in, names_in


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a model inside."""
    folder = tmp_path_factory.mktemp("run")
    tiny().save_pretrained(folder / "best")
    return folder


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def start_and_kill(words: list[str], out: Path, more: int) -> None:
    """Start a process, kill it with the hardest signal when its output has grown by some lines."""
    before = lines_in(out)
    process = subprocess.Popen(command(*words), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while lines_in(out) < before + more:
        assert process.poll() is None, "ended before it could be killed"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()


def many_files(folder: Path, count: int) -> None:
    """Many names of a few pictures, in folders of 500."""
    few = write_scenes(folder.with_name("few"), 20)
    for i in range(count):
        path = folder / f"{i // 500:03}" / f"{i:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(few[i % len(few)], path)


def test_killed_twice_and_started_again_the_output_holds_every_file_once(model: Path, tmp_path: Path) -> None:
    many_files(tmp_path / "pictures", 400)
    (tmp_path / "pictures" / "000" / "text.jpg").write_text("no picture")
    out = tmp_path / "tags.jsonl"
    words = ["predict", str(model), str(tmp_path / "pictures"), "--json", str(out), "--batch-size", "2"]
    start_and_kill(words, out, 30)
    start_and_kill(words, out, 30)
    assert 60 <= lines_in(out) < 400
    last = run(*words)
    assert last.returncode == 0, last.stderr
    assert "were done before" in last.stderr
    names = names_in(out, "json")
    assert len(names) == len(set(names)) == 400
    assert [Path(name).name for name in broken_in(out)] == ["text.jpg"]


def test_without_an_output_every_picture_is_a_line(
    model: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    scene(0).save(tmp_path / "[bold]é.png")
    (tmp_path / "text.jpg").write_text("no picture")
    labels = "red ring, blue star, red star"
    predict(str(model), [tmp_path], top_k=2, threshold="0", labels=labels)
    out, err = (stream.decode() for stream in capfdbinary.readouterr())
    (line,) = out.splitlines()
    name, _, tags = line.partition(".png: ")
    assert name.endswith("[bold]é")
    assert len(tags.split(", ")) == 2
    assert "text.jpg: not a picture in a known format" in err
    assert "1 could not be read." in err
    predict(str(model), [tmp_path], top_k=2, threshold="0", labels=labels, json=Path("-"))
    printed = json.loads(capfdbinary.readouterr().out)
    assert [tag["label"] for tag in printed["tags"]] == [tag.rsplit(" ", 1)[0] for tag in tags.split(", ")]
    predict(str(model), [tmp_path], top_k=2, threshold="0", labels=labels, csv=Path("-"))
    assert capfdbinary.readouterr().out.decode().splitlines()[0] == "path,tags,scores"


def test_who_asks_for_labels_is_told_about_those_below_their_thresholds_too(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene(0).save(tmp_path / "one.png")
    predict(str(model), [tmp_path / "one.png"], labels="red ring, blue star", threshold="1")
    line = capsys.readouterr().out
    assert "no tag; below their thresholds: " in line
    assert "red ring 0." in line
    assert "blue star 0." in line
    predict(str(model), [tmp_path / "one.png"], threshold="1")
    assert capsys.readouterr().out.rstrip().endswith("no tag")


def test_the_breakdown_of_one_picture_is_printed(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene(0).save(tmp_path / "one.png")
    predict(str(model), [tmp_path / "one.png"], timing=True)
    line = capsys.readouterr().out.splitlines()[-1]
    assert all(step in line for step in ("load ", "decode ", "backbone ", "head ", "output "))


def test_labels_may_stand_in_a_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene(0).save(tmp_path / "one.png")
    (tmp_path / "labels.txt").write_text("red ring\n\n red star \n")
    predict(str(model), [tmp_path / "one.png"], labels=str(tmp_path / "labels.txt"), threshold="0")
    line = capsys.readouterr().out
    assert "red ring" in line
    assert "red star" in line


def test_the_summary_says_how_many_how_fast_and_what_is_broken(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scenes(tmp_path / "in", 5)
    (tmp_path / "in" / "text.jpg").write_text("no picture")
    predict(str(model), [tmp_path / "in"], parquet=tmp_path / "tags.parquet")
    told = capsys.readouterr().err
    assert "5 pictures tagged in" in told
    assert f"1 could not be read, listed in {tmp_path / 'tags.parquet.broken.csv'}" in told
    assert len(names_in(tmp_path / "tags.parquet", "parquet")) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": "high"}, "--threshold must be auto or a number between 0 and 1, got 'high'."),
        ({"labels": " , "}, "--labels must name at least one label"),
        ({"labels": "red rng"}, r"no label 'red rng'. Did you mean 'red ring'\?"),
        ({"csv": Path("a"), "json": Path("b")}, "pass one of --json, --csv and --parquet"),
        ({"parquet": Path("-")}, "Parquet cannot be printed"),
    ],
)
def test_mistakes_are_one_line(options: dict[str, Any], message: str, model: Path, tmp_path: Path) -> None:
    scene(0).save(tmp_path / "one.png")
    with pytest.raises(MLDecoderError, match=message) as caught:
        predict(str(model), [tmp_path / "one.png"], **options)
    assert "\n" not in str(caught.value)


def memory_of(process: "subprocess.Popen[bytes]") -> float:
    """Megabytes in use."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    own = [line for line in status.splitlines() if line.startswith("VmRSS")]  # one that has just ended has none
    return int(own[0].split()[1]) / 1024 if own else 0.0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see the memory of a process")
def test_ten_thousand_files_take_no_more_memory_than_one_thousand(model: Path, tmp_path: Path) -> None:
    many_files(tmp_path / "pictures", 10_000)
    out = tmp_path / "tags.csv"
    words = ["predict", str(model), str(tmp_path / "pictures"), "--csv", str(out)]
    start_and_kill(words, out, 4_000)
    process = subprocess.Popen(command(*words), env=environment(), stderr=subprocess.DEVNULL)
    early = late = 0.0
    while process.poll() is None:
        done = lines_in(out)
        memory = memory_of(process)
        if done < 5_500:
            early = max(early, memory)
        elif 9_000 < done <= 10_000:  # what comes after the last line is the end of the process
            late = max(late, memory)
        time.sleep(0.02)
    assert process.returncode == 0
    names = names_in(out, "csv")
    assert len(names) == len(set(names)) == 10_000
    assert 0 < late < early + 20
