"""What is refused before anything is computed."""

from pathlib import Path
from typing import Any

import pytest

import mldecoder as mld
from mldecoder.errors import ConfigError
from mldecoder.export import export_model
from mldecoder.export.options import Options, default_tolerance
from tests.predict.pictures import SMALL, tiny


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "tflite"}, "format must be one of onnx, torch, openvino, got 'tflite'"),
        ({"precision": "int4"}, "precision must be one of float32, float16, int8, got 'int4'"),
        ({"format": "torch", "precision": "int8"}, "int8 is for onnx and openvino"),
        ({"opset": 11}, "opset must be at least 18, got 11"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Options(**options)


def test_paths_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"A file for onnx must end in .onnx, got model.pt"):
        export_model(tiny(), tmp_path / "model.pt")
    with pytest.raises(ConfigError, match=r"There is no folder .*nowhere\. Make it first"):
        export_model(tiny(), tmp_path / "nowhere" / "model.onnx")


def test_a_size_that_the_backbone_does_not_take_is_refused(tmp_path: Path) -> None:
    model = mld.create_model("test_vit", num_classes=3, head=SMALL, img_size=64).eval()
    with pytest.raises(ConfigError, match=r"test_vit does not take pictures of 50 x 50 px\. Leave --size out for 64"):
        export_model(model, tmp_path / "model.onnx", size=50)


def test_preprocessing_inside_is_for_rgb(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="for RGB pictures, this model takes 1 channels"):
        export_model(tiny(in_chans=1), tmp_path / "model.onnx", with_preprocessing=True)


def test_probabilities_may_move_by_what_the_logits_may_move_them() -> None:
    config = tiny().config
    assert default_tolerance(Options(), config) == 1e-4
    assert default_tolerance(Options(precision="int8"), config) == 0.5
    assert default_tolerance(Options(probabilities=True), config) == pytest.approx(2.5e-5)
    warm = config.model_copy(update={"temperature": 2.0, "task": "single-label"})
    assert default_tolerance(Options(probabilities=True), warm) == pytest.approx(2.5e-5)
