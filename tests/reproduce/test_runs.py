"""Whole tables on drawn pictures: run, stopped, gone on with, skipped, side by side."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from mldecoder.errors import ConfigError, MLDecoderError, TrainingError
from mldecoder.reproduce import TABLES
from mldecoder.reproduce.api import Reproduced, reproduce
from mldecoder.reproduce.job import job_from, job_to, run_job
from mldecoder.reproduce.plan import Job, Wish, plan
from mldecoder.reproduce.registry import find_table
from mldecoder.reproduce.results import Record, Results
from mldecoder.reproduce.runner import run_jobs
from mldecoder.training.folder import RunFolder
from tests.cli import command, environment
from tests.reproduce.records import made_up_record


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reproduced]:
    """A table of two rows, with two seeds."""
    folder = tmp_path_factory.mktemp("reproduce")
    return folder, reproduce("voc", seeds=2, output=folder)


def test_a_table_is_written_beside_the_papers_figures(done: tuple[Path, Reproduced]) -> None:
    folder, found = done
    assert [file.name for file in found.files] == ["voc.md", "voc.json", "voc.png"]
    content = json.loads((folder / "voc.json").read_text())
    assert {"command", "commit", "hardware", "rows"} <= content.keys()
    assert content["command"] == "mldecoder reproduce voc --budget tiny --seeds 2"
    rows = {row["row"]: row for row in content["rows"]}
    own = rows["ML-Decoder"]["metrics"]["mAP"]
    assert own["paper"] == 96.6
    assert own["difference"] == pytest.approx(own["mean"] - 96.6, abs=0.002)
    assert own["mean"] == pytest.approx(sum(own["seeds"].values()) / 2, abs=0.002)
    pairs = [own["seeds"][seed] - rows["ASL (GAP)"]["metrics"]["mAP"]["seeds"][seed] for seed in ("0", "1")]
    assert rows["ML-Decoder"]["less_base"][0] == pytest.approx(sum(pairs) / 2, abs=0.002)
    assert rows["ML-Decoder"]["paper_less_base"] == pytest.approx(0.8)
    assert rows["Q2L"]["cited"]
    assert rows["Q2L"]["metrics"]["mAP"]["mean"] is None
    text = (folder / "voc.md").read_text()
    assert "| Q2L |" in text
    assert "two seeds" in text
    assert "head.num_queries=36" in text
    assert str(folder) not in text + json.dumps(content)  # folders belong to one machine
    assert (folder / "voc.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_table_is_not_run_again(
    done: tuple[Path, Reproduced], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, first = done
    told: list[str] = []
    monkeypatch.setattr("mldecoder.training.api.train", None)
    again = reproduce("voc", seeds=2, output=folder, write=tmp_path, watch=lambda _job, text: told.append(text))
    assert told == ["done before"] * 4
    assert again.summary.line("ML-Decoder").values == first.summary.line("ML-Decoder").values
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"reproduce-voc.{end}" for end in ("json", "md", "png")]


def test_a_call_for_one_row_shows_what_earlier_calls_did(done: tuple[Path, Reproduced]) -> None:
    folder, first = done
    again = reproduce("voc", seeds=2, rows=["ML-Decoder"], output=folder)
    for name in ("ASL (GAP)", "ML-Decoder"):
        assert again.summary.line(name).values == first.summary.line(name).values
    assert (first.further, again.further) == (0, 0)
    command = json.loads((folder / "voc.json").read_text())["command"]
    assert command == "mldecoder reproduce voc --budget tiny --seeds 2"


def test_a_table_has_the_seeds_of_its_call_and_says_that_more_are_stored(done: tuple[Path, Reproduced]) -> None:
    folder, first = done
    again = reproduce("voc", seeds=1, rows=["ML-Decoder"], output=folder)
    assert again.further == 1
    for name in ("ASL (GAP)", "ML-Decoder"):
        assert again.summary.line(name).of("mAP") == first.summary.line(name).of("mAP")[:1]
    command = json.loads((folder / "voc.json").read_text())["command"]
    assert command == "mldecoder reproduce voc --budget tiny --seeds 1"


def test_rows_with_more_seeds_than_others_are_told_with_the_calls_that_made_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mldecoder.reproduce.runner.run_job", made_up)
    reproduce("voc", seeds=1, output=tmp_path)
    reproduce("voc", seeds=2, rows=["ML-Decoder"], output=tmp_path)
    first, _, second = json.loads((tmp_path / "voc.json").read_text())["command"].partition(" && ")
    assert first == "mldecoder reproduce voc --budget tiny --seeds 1"
    assert second == "mldecoder reproduce voc --budget tiny --seeds 2 --row ML-Decoder"
    text = (tmp_path / "voc.md").read_text()
    assert "| row | seeds | mAP |" in text
    assert "| ASL (GAP) | 1 | 50.00 |" in text
    assert "| ML-Decoder | 2 | 50.00 |" in text


def test_lost_results_are_read_from_the_runs(done: tuple[Path, Reproduced], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, first = done
    (folder / "results.json").unlink()
    monkeypatch.setattr("mldecoder.training.api.train", None)
    again = reproduce("voc", seeds=2, output=folder)
    assert again.summary.line("ML-Decoder").values == first.summary.line("ML-Decoder").values


def test_a_record_says_everything_about_its_run(done: tuple[Path, Reproduced]) -> None:
    folder, _ = done
    records = Results(folder / "results.json").read()
    assert sorted((record.row, record.seed) for record in records) == [
        (row, seed) for row in ("ASL (GAP)", "ML-Decoder") for seed in (0, 1)
    ]
    for record in records:
        assert (record.table, record.budget, record.data, record.recipe) == ("voc", "tiny", "scenes", "scenes")
        assert {"mAP", "img/s", "best_mAP"} <= record.metrics.keys()
        assert record.overrides
        assert record.version
        assert record.device
        assert record.seconds > 0
    run = next((folder / "runs").glob("ml-decoder-0-*"))
    history = RunFolder(run).read_history()
    own = next(record for record in records if (record.row, record.seed) == ("ML-Decoder", 0))
    assert own.metrics["mAP"] == pytest.approx(history[-1]["ema_mAP"], abs=1e-4)  # the averaged weights at the end
    assert not (run / "checkpoint.pt").exists()  # a finished run is not resumed
    assert (run / "best" / "model.safetensors").is_file()


def made_up(job: Job, *, quiet: bool) -> Record:
    """A run without any training."""
    return made_up_record(job, device=f"a device, quiet={quiet}", mAP=50.0)


def small_jobs(folder: Path, *extra: str) -> list[Job]:
    wish = Wish("scenes", "tiny", folder, seeds=1, overrides=("training.epochs=2", *extra))
    return plan(find_table("voc"), wish, 36)


def test_an_interrupted_table_keeps_what_is_done_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mldecoder.training.loop import Trainer

    whole = Trainer._finish_epoch

    def stops(self: Trainer, epoch: int) -> None:
        whole(self, epoch)
        if epoch == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_finish_epoch", stops)
    arguments = {"seeds": 1, "rows": ["ML-Decoder"], "overrides": ["training.epochs=2"]}
    with pytest.raises(KeyboardInterrupt):
        reproduce("voc", output=tmp_path, **arguments)  # type: ignore[arg-type]
    assert "not run" in (tmp_path / "voc.md").read_text()  # the files are there and say so
    run = next((tmp_path / "runs").glob("ml-decoder-0-*"))
    while not (run / "checkpoint.pt").is_file():  # it is written beside the training
        time.sleep(0.01)
    assert not (run / "metrics.json").exists()
    monkeypatch.setattr(Trainer, "_finish_epoch", whole)
    again = reproduce("voc", output=tmp_path, **arguments)  # type: ignore[arg-type]
    straight = reproduce("voc", output=tmp_path / "straight", **arguments)  # type: ignore[arg-type]
    assert again.summary.line("ML-Decoder").of("mAP") == straight.summary.line("ML-Decoder").of("mAP")


def test_a_job_survives_its_way_to_another_process(tmp_path: Path) -> None:
    job = small_jobs(tmp_path)[0]
    job_to(job, tmp_path / "job.json")
    assert job_from(tmp_path / "job.json") == job


def test_a_damaged_file_of_results_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(MLDecoderError, match=r"results.json must hold the results .* Move it away"):
        reproduce("voc", output=tmp_path, seeds=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"budget": "small"}, "The small budget needs --data: a COCO folder"),
        ({"budget": "full"}, "The full budget needs --data: Pascal VOC 2007"),
        ({"budget": "huge"}, "--budget must be one of tiny, small, full, got 'huge'"),
        ({"budget": "tiny", "data": "scenes"}, "Leave --data out"),
        ({"choose": True}, "--choose needs --data"),
        ({"seeds": 0}, "--seeds must be at least 1"),
        ({"parallel": 0}, "--parallel must be at least 1"),
        ({"overrides": ["training.epoch=1"]}, "unknown key 'training.epoch'. Did you mean 'epochs'?"),
    ],
)
def test_a_wrong_wish_is_one_line(tmp_path: Path, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        reproduce("voc", output=tmp_path, **arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TABLES))
def test_every_table_runs_on_drawn_pictures(name: str, tmp_path: Path) -> None:
    found = reproduce(name, seeds=2, output=tmp_path).summary
    ran = {line.row.name for line in found.lines if line.of(found.table.metric)}
    assert ran == {row.name for row in found.table.run_rows("tiny")}
    seeds = 1 if found.table.method == "bench" else 2
    for line in found.lines:
        for metric in found.table.metrics:
            if line.row.name in ran and metric != "largest batch":  # which needs a GPU
                assert len(line.of(metric)) == seeds, (line.row.name, metric)
    assert all(verdict.outcome != "not run" for verdict in found.verdicts)


@pytest.mark.slow
def test_runs_side_by_side_give_what_runs_one_by_one_give(tmp_path: Path) -> None:
    told: list[str] = []
    results = Results(tmp_path / "results.json")
    jobs = small_jobs(tmp_path)
    run_jobs(jobs, results, parallel=2, watch=lambda _job, text: told.append(text.split()[0]))
    assert sorted(told) == ["begins", "begins", "done", "done"]
    alone = run_job(small_jobs(tmp_path / "alone")[1], quiet=True)
    found = results.find(jobs[1].key)
    assert found is not None
    assert found.metrics["mAP"] == pytest.approx(alone.metrics["mAP"], abs=1e-3)


@pytest.mark.slow
def test_a_run_that_fails_beside_others_is_named_with_its_log(tmp_path: Path) -> None:
    jobs = small_jobs(tmp_path, "data.leave_out=[no such label]")
    with pytest.raises(TrainingError, match=r"The run .* failed: .*no such label.* Log: .*\.log\. Mend it"):
        run_jobs(jobs, Results(tmp_path / "results.json"), parallel=2, watch=lambda _job, _text: None)


@pytest.mark.slow
def test_ctrl_c_ends_the_processes_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = ("reproduce", "voc", "--seeds", "1", "--parallel", "2", "--output", str(tmp_path))
    more = ("--set", "training.epochs=60", "--set", "training.eval_every=60")
    process = subprocess.Popen(
        command(*words, *more),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while len({file.resolve() for file in tmp_path.glob("runs/*/checkpoint.pt")}) < 2:  # runs/last is a link
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)  # the main process alone: it ends the others
    _, complaints = process.communicate(timeout=120)
    assert process.returncode == 130, complaints
    runs = [folder for folder in (tmp_path / "runs").iterdir() if folder.is_dir() and not folder.is_symlink()]
    assert len(runs) == 2
    if not any((folder / "metrics.json").exists() for folder in runs):
        assert all((folder / "checkpoint.pt").is_file() for folder in runs)
    again = subprocess.run(
        command(*words, *more), env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert again.returncode == 0, again.stderr
    assert len(Results(tmp_path / "results.json").read()) == 2


def test_rows_with_the_same_settings_are_trained_once_and_both_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def noted(job: Job, *, quiet: bool) -> Record:
        trained.append(job.row)
        return made_up(job, quiet=quiet)

    monkeypatch.setattr("mldecoder.reproduce.runner.run_job", noted)
    rows = ("GAP", "GAP, no cutout or mixup")  # drawn pictures have neither anyway
    found = reproduce("heads-coco", seeds=1, rows=rows, output=tmp_path).summary
    assert trained == ["GAP"]
    assert [found.line(row).mean("mAP") for row in rows] == [50.0, 50.0]
