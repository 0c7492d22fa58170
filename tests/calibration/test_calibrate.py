"""Calibration from end to end: fitted, judged, stored, reported, used."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import mldecoder as mld
from mldecoder.calibration import Wish, calibrate, fit_calibration
from mldecoder.calibration.scaling import Scaling
from mldecoder.cli.calibrate import calibrate as verb
from mldecoder.data import scenes
from mldecoder.errors import CheckpointError, ConfigError, DataError
from mldecoder.metrics import precision_recall
from tests.calibration.test_scaling import drawn
from tests.predict.pictures import tiny


def table(folder: Path, count: int) -> Path:
    """Drawn scenes with their labels in a CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for i in range(count):
        pixels, labels = scenes.draw(i, "val")
        Image.fromarray(pixels).save(folder / f"{i}.png")
        rows.append([f"{i}.png", "|".join(sorted(labels))])
    path = folder / "data.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["path", "tags"], *rows])
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    tiny().save_pretrained(tmp_path / "run" / "best")
    return tmp_path / "run"


def test_figures_come_from_pictures_that_were_not_fitted_on() -> None:
    logits, targets = drawn(Scaling(0.5, -3.0), n=400, k=6)
    made = fit_calibration(logits, targets, "multi-label", min_positives=4)
    halves = torch.randperm(400, generator=torch.Generator().manual_seed(0)).tensor_split(2)
    fits = [fit_calibration(logits[half], targets[half], "multi-label", min_positives=2).settings for half in halves]
    said = torch.zeros(400, 6).double()
    for judge, fit in ((halves[0], fits[1]), (halves[1], fits[0])):
        assert fit.thresholds is not None
        said[judge] = (fit.scaling.probabilities(logits[judge], "multi-label") >= fit.thresholds).double()
    expected = precision_recall(said, targets, threshold=0.5)
    assert made.figures["per label"] == pytest.approx(expected)
    raw = precision_recall(logits.sigmoid(), targets, threshold=0.5)
    assert made.figures["0.5"] == pytest.approx(raw)
    assert made.after.error < 0.25 * min(made.before.error, made.only_temperature.error)  # the bias is needed
    assert made.loss_after < made.loss_before
    assert made.figures["per label"]["OF1"] > raw["OF1"]


def test_labels_with_few_positives_take_the_threshold_for_all() -> None:
    logits, targets = drawn(Scaling(), n=200, k=4)
    targets[:, 2] = targets[:, 2].clamp(max=0)
    targets[:3, 2] = 1
    targets[:, 3] = -1
    settings = fit_calibration(logits, targets, "multi-label", min_positives=4).settings
    assert settings.fallback is not None
    assert settings.thresholds is not None
    assert settings.fallback.tolist() == [False, False, True, True]
    assert settings.thresholds[2:].tolist() == [settings.global_threshold] * 2


def test_a_wished_precision_holds_on_the_pictures_it_was_fitted_on() -> None:
    logits, targets = drawn(Scaling(2.0), n=400, k=4)
    settings = fit_calibration(logits, targets, "multi-label", wish=Wish("precision", 0.9)).settings
    assert settings.own is not None
    assert bool((settings.own.precision >= 0.9).all())


def test_unknown_targets_change_nothing() -> None:
    logits, targets = drawn(Scaling(), n=100, k=3)
    noisy = torch.where(targets < 0, 50 * torch.randn(100, 3), logits)
    a, b = (fit_calibration(values, targets, "multi-label").settings for values in (logits, noisy))
    assert a.scaling == b.scaling
    assert a.global_threshold == b.global_threshold


def test_a_single_label_model_gets_a_temperature_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(500, 3, generator=generator)
    truth = torch.multinomial((logits / 4).softmax(1), 1, generator=generator).squeeze(1)
    made = fit_calibration(logits, torch.nn.functional.one_hot(truth, 3), "single-label")
    assert made.settings.scaling.temperature == pytest.approx(4, rel=0.25)
    assert made.settings.thresholds is None
    assert made.after.error < made.before.error
    assert made.figures == {}


def test_no_labels_are_refused() -> None:
    with pytest.raises(DataError, match="at least 2 pictures, some with a known label, got 9"):
        fit_calibration(torch.randn(9, 2), torch.zeros(9, 2), "multi-label")


def test_a_calibration_is_stored_reported_and_used_by_predict(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = table(tmp_path / "data", 60)
    before = mld.load(run)
    verb(run, str(data), min_positives=5, workers=0)
    told = capsys.readouterr().out
    assert "Expected calibration error" in told
    assert "labels have fewer than 5 positives" in told
    model = mld.load(run)
    config = model.config
    assert isinstance(config.thresholds, tuple)
    assert len(config.thresholds) == 36
    assert config.temperature is not None
    assert config.bias is not None
    (raw,), (made,) = (one.predict(tmp_path / "data" / "0.png") for one in (before, model))
    logits = np.log(raw.scores / (1 - raw.scores))
    np.testing.assert_allclose(made.scores, 1 / (1 + np.exp(-(logits / config.temperature + config.bias))), atol=1e-6)
    assert made.thresholds.tolist() == list(config.thresholds)
    folder = run / "calibration"
    assert {path.name for path in folder.iterdir()} == {"report.md", "thresholds.csv", "reliability.png"}
    report = (folder / "report.md").read_text()
    assert "each half of the pictures" in report
    with (folder / "thresholds.csv").open() as file:
        rows = list(csv.DictReader(file))
    few = [row["label"] for row in rows if int(row["positives"]) < 5]
    assert 0 < len(few) < 36
    assert all(label in report for label in few)
    assert {row["threshold"] for row in rows if row["label"] in few} == {f"{config.global_threshold:.6f}"}
    with Image.open(folder / "reliability.png") as plot:
        assert plot.size[0] > 600
    assert {path.name for path in (run / "best").iterdir()} == {"model.safetensors", "config.json", "README.md"}


def test_labels_that_the_data_lacks_take_the_threshold_for_all(run: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "data", 30)
    text = data.read_text().replace("red circle", "something new")
    data.write_text(text)
    calibrate(run, data, min_positives=1, workers=0)
    config = json.loads((run / "best" / "config.json").read_text())
    assert config["thresholds"][config["labels"].index("red circle")] == config["global_threshold"]
    assert len(set(config["thresholds"])) > 5


def test_mistakes_are_said_in_one_line(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not say what it was trained on. Pass the pictures"):
        calibrate(run)
    with pytest.raises(ConfigError, match="--wish must be"):
        calibrate(run, wish="best")
    with pytest.raises(CheckpointError, match="neither a run folder nor a model folder"):
        calibrate(tmp_path / "nothing", "scenes")
    data = tmp_path / "pets.csv"
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    data.write_text("path,tags\na.png,cat|dog\n")
    with pytest.raises(ConfigError, match="Model and data share no label"):
        calibrate(run, data)
