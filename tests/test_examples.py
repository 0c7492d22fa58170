"""Every example runs by itself, without a network, in seconds; and none is longer than 80 lines."""

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from torch import nn

import mldecoder as mld
from mldecoder.data import scenes
from mldecoder.errors import MLDecoderError

HOME = Path(__file__).parents[1] / "examples"
Done = Future["subprocess.CompletedProcess[str]"]

EXPECTED = {
    "timm_model": "best labels: ",
    "train_csv": "on pictures held back; report in run/",
    "zero_shot_words": "any words: ",
    "text_classification": "mAP on new sentences: ",
    "video_clips": "mAP on new clips: ",
    "hf_trainer": "labels of the saved model: 36",
    "lightning_module": "pip install lightning" if find_spec("lightning") is None else "labels: 36",
    "export_model": "onnxruntime says ",
}


def start(name: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    words = [sys.executable, str(HOME / f"{name}.py")]
    return subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment, check=False)


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Done]]:
    """All examples, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(start, name) for name in EXPECTED}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_example_runs(running: dict[str, Done], name: str) -> None:
    done = running[name].result()
    assert done.returncode == 0, done.stderr
    assert EXPECTED[name] in done.stdout


def test_an_exported_file_says_without_torch_what_the_model_says(running: dict[str, Done]) -> None:
    lines = running["export_model"].result().stdout.splitlines()
    torch_says, onnx_says = (line.split("says ")[1].split() for line in lines[1:3])
    assert torch_says[:2] == onnx_says[:2]
    assert float(torch_says[2]) == pytest.approx(float(onnx_says[2]), abs=1e-3)


def test_every_example_is_short_and_listed() -> None:
    files = sorted(HOME.glob("*.py"))
    assert {file.stem for file in files} == {*EXPECTED, "onnx_without_torch"}  # that one is run by export_model
    for file in files:
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 80, file.name
    small = (HOME / "onnx_without_torch.py").read_text(encoding="utf-8")
    assert len(small.splitlines()) <= 30
    modules = {line.split()[1].split(".")[0] for line in small.splitlines() if line.startswith(("import ", "from "))}
    assert modules == {"json", "sys", "numpy", "onnxruntime", "PIL"}


@pytest.mark.parametrize("resize", ["squash", "crop"])
def test_the_file_without_torch_prepares_pictures_as_the_model_does(
    tmp_path: Path, resize: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script's own preparation, with a session that gives back what it was fed."""
    import json
    import runpy

    import numpy as np
    import onnxruntime
    from PIL import Image

    from mldecoder.config import PreprocessingConfig
    from mldecoder.data.transforms import evaluation_transform

    config = PreprocessingConfig.model_validate(
        {"size": (48, 48), "resize": resize, "crop_pct": 0.9, "interpolation": "bicubic"}
    )
    path = tmp_path / "photo.png"
    Image.fromarray(scenes.draw(3, "val")[0]).resize((150, 97)).save(path)
    fed: list[object] = []

    class Session:
        def __init__(self, *_: object, **__: object) -> None: ...

        def get_modelmeta(self) -> types.SimpleNamespace:
            about = {"labels": ["a"], "thresholds": [0.5], "preprocessing": config.model_dump(mode="json")}
            return types.SimpleNamespace(custom_metadata_map={"mldecoder": json.dumps(about)})

        def run(self, _: object, inputs: dict[str, object]) -> list[object]:
            fed.append(inputs["images"])
            return [np.array([[0.75]])]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(sys, "argv", ["onnx_without_torch.py", "model.onnx", str(path)])
    runpy.run_path(str(HOME / "onnx_without_torch.py"))
    assert capsys.readouterr().out == "a 0.7500 yes\n"
    expected = evaluation_transform(config)(Image.open(path).convert("RGB")).permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(fed[0], expected[None])  # type: ignore[call-overload]


@pytest.mark.skipif(find_spec("lightning") is not None, reason="the example itself runs where lightning is installed")
def test_the_steps_of_the_lightning_module_work_on_a_bare_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning is not here: its module is stood in for by a plain one that notes what is logged."""

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logged: dict[str, float] = {}

        def log(self, name: str, value: torch.Tensor | float, **_: object) -> None:
            self.logged[name] = float(value.detach() if isinstance(value, torch.Tensor) else value)

    stub = types.ModuleType("lightning")
    stub.LightningModule = Bare  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", stub)
    spec = spec_from_file_location("lightning_example", HOME / "lightning_module.py")
    if spec is None or spec.loader is None:
        raise MLDecoderError("The example is gone.")
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    head = {"kind": "ml-decoder", "width": 16, "ff_width": 16, "heads": 2}
    tagger = example.Tagger(mld.create_model("test_resnet", labels=scenes.LABELS, head=head, img_size=64))
    optimiser = tagger.configure_optimizers()
    batch = next(iter(example.loader("train", 16)))
    losses = []
    for _ in range(6):
        loss = tagger.training_step(batch, 0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    tagger.eval()
    with torch.no_grad():
        tagger.validation_step(batch, 0)
    tagger.on_validation_epoch_end()
    assert set(tagger.logged) == {"loss", "mAP"}
    assert 0 < tagger.logged["mAP"] <= 100
