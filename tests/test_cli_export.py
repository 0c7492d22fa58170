import json
from pathlib import Path

import onnxruntime
import pytest

from tests.cli import run
from tests.predict.pictures import tiny


def test_a_wrong_ending_is_one_line(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    done = run("export", str(tmp_path), "--out", str(tmp_path / "model.pt2"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "mldecoder: A file for onnx must end in .onnx, got model.pt2.\n"


@pytest.mark.slow
def test_a_run_becomes_a_file_and_nothing_else_is_printed(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path / "best")  # a run keeps its best model there
    done = run("export", str(tmp_path), "--with-preprocessing", "--with-sigmoid")
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == ""
    first, second = done.stdout.splitlines()
    assert first.startswith(f"{tmp_path}/model.onnx: ")
    assert first.endswith(" MB, any batch, any size.")
    assert second.startswith("Largest difference of probabilities from the model: ")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    assert len(json.loads(session.get_modelmeta().custom_metadata_map["mldecoder"])["labels"]) == 36


@pytest.mark.slow
def test_a_file_above_the_tolerance_fails_and_says_its_size_and_difference(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    done = run("export", str(tmp_path), "--precision", "int8", "--tolerance", "1e-9")
    assert done.returncode == 1
    assert "in its logits, 1.0e-09 is allowed." in done.stderr
    assert (tmp_path / "model-int8.onnx.failed").is_file()
    assert not (tmp_path / "model-int8.onnx").exists()
    done = run("export", str(tmp_path), "--precision", "int8")
    assert done.returncode == 0, done.stderr
    assert "of the weights are int8; convolutions, norms and positions stay float32." in done.stdout
