"""Whole runs, as a user starts them: killed and resumed, on two processes, with broken pictures, with typos."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import mldecoder as mld
from mldecoder.errors import ConfigError, DataError, MLDecoderError, TrainingError
from mldecoder.training.checkpoint import CheckpointFile, Progress
from tests.cli import command, environment, run

TINY = [
    "data.options.count=60",
    "image.size=32",
    "head.width=16",
    "head.ff_width=16",
    "training.epochs=2",
    "training.batch_size=10",
]


def sets(*overrides: str) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from its first step to its last, undisturbed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    result = run("train", "--recipe", "scenes", "--output", str(folder), *sets(*TINY, "training.checkpoint_steps=2"))
    assert result.returncode == 0, result.stderr
    return folder


def test_a_run_leaves_everything_in_its_folder(finished: Path) -> None:
    files = {file.name for file in finished.iterdir()}
    assert files >= {"run.yaml", "environment.json", "metrics.jsonl", "metrics.json", "report.html", "checkpoint.pt"}
    assert files >= {"best", "last", "ema", "tensorboard"}
    metrics = json.loads((finished / "metrics.json").read_text())
    assert 0 < metrics["mAP"] <= 100
    assert len((finished / "metrics.jsonl").read_text().splitlines()) == 2
    assert "<html" in (finished / "report.html").read_text()
    assert list((finished / "tensorboard").iterdir())
    assert (finished.parent / "last").resolve() == finished


def test_the_model_of_a_run_scores_what_the_run_says(finished: Path) -> None:
    metrics = json.loads((finished / "metrics.json").read_text())
    assert mld.evaluate(finished)["mAP"] == pytest.approx(metrics["mAP"], abs=1e-6)
    result = run("eval", str(finished), "--json")
    assert json.loads(result.stdout)["mAP"] == pytest.approx(metrics["mAP"], abs=1e-3)
    model = mld.load(finished)
    assert model.config.metrics["mAP"] == pytest.approx(metrics["mAP"], abs=1e-6)


def test_evaluation_takes_other_sizes_and_mirrored_pictures(finished: Path) -> None:
    plain = mld.evaluate(finished)["mAP"]
    other = mld.evaluate(finished, overrides=["evaluation.flip=true", "evaluation.size=48"])["mAP"]
    assert plain != other


@pytest.mark.parametrize("moment", [0.3, 1.2])
def test_a_killed_run_resumes_to_the_same_weights(finished: Path, tmp_path: Path, moment: float) -> None:
    folder = tmp_path / "killed"
    words = command("train", "--recipe", "scenes", "--output", str(folder), *sets(*TINY, "training.checkpoint_steps=2"))
    process = subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, start_new_session=True)
    while not (folder / "checkpoint.pt").exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(moment)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert run("train", "--output", str(folder), "--resume").returncode == 0
    for part in ("last", "ema", "best"):
        for key, value in weights(finished / part).items():
            assert torch.equal(weights(folder / part)[key], value), f"{part}: {key}"
    assert _figures(folder) == _figures(finished)


def _figures(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in {"seconds", "images_per_second"}} for row in rows]


def test_resuming_a_finished_run_changes_nothing(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    mld.train(output=copy, resume=True, quiet=True)
    assert _figures(copy) == _figures(finished)


def test_weights_are_saved_as_often_as_asked_for_and_after_the_last_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, save = list[int](), CheckpointFile.save

    def noted(store: CheckpointFile, progress: Progress, parts: dict[str, Any]) -> None:
        saved.append(progress.epoch)
        save(store, progress, parts)

    monkeypatch.setattr(CheckpointFile, "save", noted)
    words = [*TINY, "training.epochs=3", "training.save_every=2"]
    mld.train(recipe="scenes", output=tmp_path / "run", overrides=words, quiet=True)
    assert saved == [2, 3]
    assert (tmp_path / "run" / "last" / "model.safetensors").is_file()


def test_goes_end_like_one_step(tmp_path: Path) -> None:
    # Without batch norm, dropout and Adam's normalisation nothing depends on how a step is shared; see test_parallel.
    overrides = [*TINY, "data.options.count=65", "backbone.name=test_vit", "backbone.options={}", "head.dropout=0.0"]
    overrides += ["optimiser.kind=sgd", "optimiser.lr=1.0e-4"]
    for name, goes in (("one", 1), ("goes", 5)):
        more = [*overrides, f"training.accumulate={goes}"]
        mld.train(recipe="scenes", output=tmp_path / name, overrides=more, quiet=True)
    for key, value in weights(tmp_path / "one" / "last").items():
        torch.testing.assert_close(weights(tmp_path / "goes" / "last")[key], value, rtol=1e-4, atol=1e-6)
    for row, expected in zip(_figures(tmp_path / "goes"), _figures(tmp_path / "one"), strict=True):
        assert row == pytest.approx(expected, rel=1e-3)


def folder_of_pictures(root: Path, count: int = 24) -> Path:
    """Red and blue pictures in class folders, with a green stripe in some."""
    rng = np.random.default_rng(0)
    for i in range(count):
        kind = ("red", "blue")[i % 2]
        picture = rng.integers(0, 60, (40, 40, 3), dtype=np.uint8)
        picture[..., 0 if kind == "red" else 2] += 150
        (root / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(root / kind / f"{i}.jpg")
    return root


SMALL = ["backbone.name=test_resnet", "backbone.pretrained=false", *TINY[1:], "training.batch_size=4", "data.workers=0"]


def test_a_folder_of_pictures_trains_without_a_recipe(tmp_path: Path) -> None:
    result = mld.train(folder_of_pictures(tmp_path / "data"), output=tmp_path / "run", overrides=SMALL, quiet=True)
    assert result.metrics["top1"] >= 50
    assert result.model().config.task == "single-label"
    assert result.model().labels == ("blue", "red")


def test_broken_pictures_are_named_and_skipped_up_to_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder_of_pictures(tmp_path / "data")
    (data / "red" / "0.jpg").write_bytes(b"")
    (data / "blue" / "1.jpg").write_text("not a picture")
    whole = (data / "red" / "2.jpg").read_bytes()
    (data / "red" / "2.jpg").write_bytes(whole[: len(whole) // 2])
    mld.train(data, output=tmp_path / "run", overrides=[*SMALL, "data.max_broken=3"])
    shown = capsys.readouterr().out
    report = (tmp_path / "run" / "report.html").read_text()
    for name in ("red/0.jpg", "blue/1.jpg", "red/2.jpg"):
        assert name in shown or name in report
    with pytest.raises(DataError, match="At most 1 broken pictures"):
        mld.train(data, output=tmp_path / "other", overrides=[*SMALL, "data.max_broken=1"], quiet=True)


def test_a_loss_that_is_no_number_stops_with_names_and_the_last_checkpoint(tmp_path: Path) -> None:
    overrides = [*TINY, "optimiser.lr=1.0e+30", "optimiser.kind=sgd", "training.schedule=constant", "training.warmup=0"]
    with pytest.raises(TrainingError, match=r"loss is (nan|inf) at epoch 1, step \d+, on .*Last good checkpoint"):
        mld.train(recipe="scenes", output=tmp_path / "run", overrides=overrides, quiet=True)


def test_one_batch_by_heart(capsys: pytest.CaptureFixture[str]) -> None:
    from mldecoder.training.api import overfit_batch

    assert overfit_batch(recipe="scenes", overrides=TINY[:-2])
    assert "the model learns" in capsys.readouterr().out


def test_init_from_takes_a_file_of_weights_and_a_model_folder(finished: Path, tmp_path: Path) -> None:
    more = [*TINY, "training.epochs=1", "optimiser.lr=1.0e-12"]
    again = mld.train(recipe="scenes", init_from=finished, output=tmp_path / "again", overrides=more, quiet=True)
    assert again.metrics["mAP"] == pytest.approx(mld.evaluate(finished)["mAP"], abs=2.0)
    state = {k.removeprefix("backbone.model."): v for k, v in weights(finished / "best").items() if "backbone" in k}
    torch.save(state, tmp_path / "backbone.pth")
    run_ = mld.train(
        recipe="scenes", init_from=tmp_path / "backbone.pth", output=tmp_path / "b", overrides=more, quiet=True
    )
    key = "backbone.model.layer1.0.conv1.weight"
    torch.testing.assert_close(weights(run_.path / "last")[key], weights(finished / "best")[key], rtol=0, atol=1e-6)


def test_an_output_that_holds_a_run_is_not_overwritten(finished: Path) -> None:
    with pytest.raises(TrainingError, match="--resume"):
        mld.train(recipe="scenes", output=finished, overrides=TINY, quiet=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recpe", "x"], "--recipe"),
        (["--recipe", "cocoo"], "Did you mean 'coco"),
        (["--recipe", "missing.yaml"], "no recipe file"),
        (["--data", "nowhere"], "nowhere"),
        (["--set", "training.epoch=3"], "Did you mean 'epochs'"),
        (["--set", "training.epochs=many"], "training.epochs"),
        (["--set", "epochs"], "key=value"),
        (["--set", "head.kind=gapp"], "gap"),
        (["--init-from", "nothing.safetensors", "--recipe", "scenes", "--set", "data.options.count=10"], "no file"),
        (["--set", "backbone.name=resnet5", "--recipe", "scenes", "--set", "data.options.count=10"], "resnet50"),
        (["--resume", "--output", "no-run"], "no run in no-run"),
        (["--set", "training.batch_size=0"], "batch_size"),
    ],
)
def test_wrong_words_are_one_clear_line(words: list[str], message: str, tmp_path: Path) -> None:
    output = [] if "--output" in words else ["--output", str(tmp_path / "run")]
    result = run("train", *output, *words)
    assert result.returncode in {1, 2}
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert message in lines[0]


def test_evaluating_on_foreign_labels_is_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="share no label"):
        mld.evaluate(finished, folder_of_pictures(tmp_path))
    with pytest.raises(MLDecoderError):
        mld.evaluate(tmp_path / "nothing")


def test_resuming_takes_no_other_option(finished: Path) -> None:
    with pytest.raises(ConfigError, match="leave out every option"):
        mld.train(output=finished, recipe="quick", resume=True)


def test_other_data_without_a_validation_part_is_measured_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder_of_pictures(tmp_path / "data")
    run_ = mld.train(data, output=tmp_path / "run", overrides=SMALL, quiet=True)
    other = folder_of_pictures(tmp_path / "other", count=12)
    mld.evaluate(run_.path, other, quiet=False)
    assert "split off" not in capsys.readouterr().out
    mld.evaluate(run_.path, quiet=False)
    assert "split off" in capsys.readouterr().out
    model = run_.model()
    model.set_labels(["red", "blue", "green"])
    mld.evaluate(model, other)
    assert model.labels == ("red", "blue", "green")  # the caller's model is left alone


def test_weights_that_cannot_be_had_are_a_warning_or_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, tiny = folder_of_pictures(tmp_path / "data"), [o for o in SMALL if "pretrained" not in o]
    mld.train(data, output=tmp_path / "run", overrides=[*tiny, "backbone.pretrained=auto", "training.epochs=1"])
    lines = capfd.readouterr().out.splitlines()
    assert sum("could not be downloaded" in line for line in lines) == 1
    with pytest.raises(MLDecoderError, match="--init-from"):
        mld.train(data, output=tmp_path / "other", overrides=[*tiny, "backbone.pretrained=true"], quiet=True)
