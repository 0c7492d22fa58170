"""Pictures as they come in the wild: odd ones count, broken ones are named and skipped, too many stop the run."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import mldecoder as mld
from mldecoder.errors import DataError, TrainingError
from tests.cli import run
from tests.data.odd_files import BROKEN, ODD
from tests.data.picture_files import picture

SMALL = [
    "backbone.name=test_resnet",
    "backbone.pretrained=false",
    "image.size=32",
    "head.width=16",
    "head.ff_width=16",
    "training.epochs=2",
    "training.batch_size=4",
]
HERE = [*SMALL, "data.workers=0"]


def wild(root: Path) -> Path:
    """Class folders with odd and broken files in both parts, a folder named as a picture, and some plain pictures."""
    for part in ("train", "val"):
        for i, label in enumerate(("cat", "dog")):
            for number in range(4):
                picture(root / part / label / f"{number}.jpg", seed=10 * i + number)
        for i, (name, content) in enumerate([*ODD.items(), *((name, data) for name, (data, _) in BROKEN.items())]):
            (root / part / ("cat", "dog")[i % 2] / name).write_bytes(content)
        (root / part / "cat" / "folder.jpg").mkdir()
    return root


def skipped(text: str) -> dict[str, str]:
    """Name and reason in the lines that tell of skipped pictures."""
    return dict(re.findall(r"^(.*?): (.*); skipped$", text, flags=re.MULTILINE))


def remove_broken(root: Path) -> Path:
    for file in root.rglob("*"):
        if file.name in BROKEN:
            file.unlink()
    return root


LIMIT = f"data.max_broken={len(BROKEN)}"


def test_there_are_at_least_twelve_kinds_of_each() -> None:
    assert len(ODD) >= 12
    assert len(BROKEN) >= 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wild(tmp_path_factory.mktemp("wild") / "data")


def test_odd_pictures_count_and_broken_ones_are_named_and_skipped(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = mld.train(folder, output=tmp_path / "run", overrides=[*HERE, LIMIT])
    told = skipped(capsys.readouterr().out)
    expected = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.name in BROKEN}
    assert told.keys() == expected  # each of both parts, no odd one, and each once in two epochs
    report = (trained.path / "report.html").read_text()
    for name, reason in told.items():
        assert re.search(BROKEN[Path(name).name][1], reason), f"{name}: {reason}"
        escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        assert f"{escaped}: {reason}" in report.replace("&quot;", '"')
    for part in ("training", "validation"):
        assert f"{len(BROKEN)} broken pictures of the {part} part were skipped (limit {len(BROKEN)}):" in report
    assert f"{8 + len(ODD)} validation pictures" in report
    assert len((trained.path / "metrics.jsonl").read_text().splitlines()) == 2


def test_evaluation_leaves_broken_pictures_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = mld.train(folder, output=tmp_path / "run", overrides=[*HERE, LIMIT], quiet=True)
    whole = remove_broken(Path(shutil.copytree(folder, tmp_path / "whole")))
    assert mld.evaluate(trained.path) == pytest.approx(mld.evaluate(trained.path, whole))
    assert capsys.readouterr().out == ""
    mld.evaluate(trained.path, quiet=False)
    shown = capsys.readouterr().out
    assert all(f"{name}: " in shown for name in BROKEN)


def test_resuming_keeps_the_names_of_broken_pictures(folder: Path, tmp_path: Path) -> None:
    trained = mld.train(folder, output=tmp_path / "run", overrides=[*HERE, LIMIT], quiet=True)
    (trained.path / "report.html").unlink()
    mld.train(output=trained.path, resume=True, quiet=True)
    report = (trained.path / "report.html").read_text()
    assert "broken pictures of the training part" in report
    assert re.search(r"train/(cat|dog)/truncated\.jpg: truncated", report)


@pytest.mark.parametrize("limit", ["0", "5", "0.1"])
def test_past_the_limit_there_is_one_clear_line(folder: Path, tmp_path: Path, limit: str) -> None:
    allowed = {"0": 0, "5": 5, "0.1": int(0.1 * (8 + len(ODD) + len(BROKEN)))}[limit]
    pattern = rf"^At most {allowed} broken pictures are allowed, got {allowed + 1} \(.*: .*\)\. .*data\.max_broken\.$"
    with pytest.raises(DataError, match=pattern):
        mld.train(folder, output=tmp_path / "run", overrides=[*HERE, f"data.max_broken={limit}"], quiet=True)


@pytest.mark.parametrize("limit", [0, 40])
def test_real_worker_processes_behave_the_same(folder: Path, tmp_path: Path, limit: int) -> None:
    overrides = [*SMALL, "data.workers=2", f"data.max_broken={limit}"]
    words = [word for override in overrides for word in ("--set", override)]
    result = run("train", "--data", str(folder), "--output", str(tmp_path / "run"), *words)
    if limit:
        assert (result.returncode, result.stderr) == (0, "")
        assert len(skipped(result.stdout)) == 2 * len(BROKEN)
        assert json.loads((tmp_path / "run" / "metrics.json").read_text())["epochs"] == 2
        scored = run("eval", str(tmp_path / "run"))
        assert f"{len(BROKEN)} broken pictures of the validation part were skipped (limit 40):" in scored.stdout
    else:
        assert result.returncode == 1
        assert re.fullmatch(r"mldecoder: At most 0 broken pictures are allowed, got 1 \(.*\)\. .*\n", result.stderr)


@pytest.mark.slow
def test_two_processes_tell_of_the_broken_pictures_of_both(folder: Path, tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29573"]
    words = [word for override in [*HERE, LIMIT] for word in ("--set", override)]
    result = run("train", "--data", str(folder), "--output", str(tmp_path / "run"), *words, launcher=launcher)
    assert result.returncode == 0, result.stderr[-2000:]
    assert len(skipped(result.stdout)) == 2 * len(BROKEN)
    report = (tmp_path / "run" / "report.html").read_text()
    assert f"{len(BROKEN)} broken pictures of the training part were skipped" in report
    assert f"{len(BROKEN)} broken pictures of the validation part were skipped" in report


def test_a_broken_picture_that_filled_no_step_is_found_in_the_first_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part, count in (("train", 7), ("val", 2)):
        for number in range(count):
            picture(tmp_path / "data" / part / ("cat", "dog")[number % 2] / f"{number}.jpg", seed=number)
    broken = [f"train/{('cat', 'dog')[number % 2]}/{number}.jpg" for number in range(7)]
    for name in broken[1:]:
        (tmp_path / "data" / name).write_bytes(b"")
    mld.train(tmp_path / "data", output=tmp_path / "run", overrides=[*HERE, "training.epochs=1", "data.max_broken=6"])
    assert skipped(capsys.readouterr().out) == dict.fromkeys(broken[1:], "zero bytes")


def test_a_batch_of_broken_pictures_teaches_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for label in ("cat", "dog"):
            for number in range(6):
                picture(tmp_path / "data" / part / label / f"{number}.jpg", seed=number)
                if part == "train" and number:
                    (tmp_path / "data" / part / label / f"{number}.jpg").write_bytes(b"")
    for task in ("single-label", "multi-label"):
        overrides = [*HERE, "training.batch_size=2", "data.max_broken=10", f"data.task={task}"]
        trained = mld.train(tmp_path / "data", output=tmp_path / task, overrides=overrides, quiet=True)
        rows = [json.loads(line) for line in (trained.path / "metrics.jsonl").read_text().splitlines()]
        assert all(np.isfinite(row["loss"]) for row in rows)


def test_a_validation_part_without_a_readable_label_is_one_clear_line(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for label in ("cat", "dog"):
            picture(tmp_path / "data" / part / label / "1.jpg")
    for label in ("cat", "dog"):
        (tmp_path / "data" / "val" / label / "1.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="Figures need pictures with a known label, got none among the 0 pictures"):
        mld.train(tmp_path / "data", output=tmp_path / "run", overrides=[*HERE, "data.max_broken=2"], quiet=True)


def test_validation_pictures_without_labels_are_found_out_before_training(tmp_path: Path) -> None:
    for name in "ab":
        picture(tmp_path / f"{name}.jpg")
    (tmp_path / "t.csv").write_text("path,labels,split\na.jpg,x|y,train\nb.jpg,,val\n")
    with pytest.raises(TrainingError, match="None of the 1 validation pictures has a label"):
        mld.train(tmp_path / "t.csv", output=tmp_path / "run", overrides=HERE, quiet=True)
    assert not (tmp_path / "run").exists()
