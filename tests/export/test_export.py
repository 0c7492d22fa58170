"""Exported files against the model, and what they say about themselves."""

import json
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

import mldecoder as mld
from mldecoder.errors import CheckpointError
from mldecoder.export import Exported, Format, Precision, export_model, torch_program
from mldecoder.export.check import Run, cases, largest_difference
from mldecoder.export.onnx import runner
from mldecoder.export.options import Options
from mldecoder.export.wrap import Exportable
from tests.predict.pictures import scene, tiny, zero_shot

Array = NDArray[np.generic]


def calibrated() -> mld.Classifier:
    """A model with a temperature, a bias and a threshold for each label."""
    model = tiny(labels=("cat", "dog", "sun"))
    changes = {"temperature": 1.5, "bias": -0.2, "thresholds": (0.3, 0.4, 0.5)}
    model.config = model.config.model_copy(update=changes)
    return model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[mld.Classifier, Exported]:
    """A file with everything inside."""
    model = calibrated()
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    return model, export_model(model, path, with_preprocessing=True, with_sigmoid=True)


def photos(count: int) -> NDArray[np.uint8]:
    return np.stack([np.asarray(scene(i)) for i in range(count)])


@pytest.mark.parametrize("batch", [1, 7])
def test_a_file_gives_the_scores_that_predict_gives(whole: tuple[mld.Classifier, Exported], batch: int) -> None:
    model, made = whole
    found = runner(made.path)([photos(batch)])
    expected = np.stack([one.scores for one in model.predict(list(photos(batch)))])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_convolutional_model_takes_other_sizes(whole: tuple[mld.Classifier, Exported]) -> None:
    model, made = whole
    assert made.any_size
    pictures = np.stack([np.asarray(scene(i).resize((120, 72))) for i in range(2)])
    config = model.config.preprocessing
    normal = (pictures / 255 - np.array(config.mean)) / np.array(config.std)
    with torch.no_grad():
        expected = model.probabilities(model(torch.from_numpy(normal).float().permute(0, 3, 1, 2)))
    np.testing.assert_allclose(runner(made.path)([pictures]), expected.numpy(), rtol=0, atol=1e-5)


def test_a_file_knows_its_labels_thresholds_and_preprocessing(whole: tuple[mld.Classifier, Exported]) -> None:
    model, made = whole
    session = onnxruntime.InferenceSession(str(made.path), providers=["CPUExecutionProvider"])
    told = json.loads(session.get_modelmeta().custom_metadata_map["mldecoder"])
    assert told["labels"] == ["cat", "dog", "sun"]
    assert told["thresholds"] == pytest.approx([0.3, 0.4, 0.5])
    assert (told["input"], told["output"]) == ("uint8 NHWC", "probabilities")
    assert told["preprocessing"]["size"] == [64, 64]
    assert told["preprocessing"]["mean"] == pytest.approx(model.config.preprocessing.mean)
    assert [(one.name, one.shape, one.type) for one in session.get_inputs()] == [
        ("images", ["batch", "height", "width", 3], "tensor(uint8)")
    ]
    assert [(one.name, one.shape) for one in session.get_outputs()] == [("probabilities", ["batch", 3])]


def test_a_file_holds_no_path_of_the_machine(whole: tuple[mld.Classifier, Exported]) -> None:
    content = whole[1].path.read_bytes()
    for path in (mld.__file__, torch.__file__, str(Path.cwd())):
        assert str(Path(path).parent).encode() not in content


def test_the_query_side_is_computed_when_the_file_is_made(whole: tuple[mld.Classifier, Exported]) -> None:
    proto = onnx.load(whole[1].path)
    names = {weight.name for weight in proto.graph.initializer}
    assert not any("attention.query" in name or name.endswith("head.queries") for name in names)


def test_the_model_is_left_alone_and_a_torch_program_runs_it(tmp_path: Path) -> None:
    model = tiny().train()
    before = deepcopy(model.state_dict())
    made = export_model(model, tmp_path / "model.pt2", "torch", precision="float16")
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    extra = {"mldecoder.json": ""}
    program = torch.export.load(made.path, extra_files=extra).module()
    assert json.loads(extra["mldecoder.json"])["precision"] == "float16"
    images = torch.randn(7, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(program(images), model.eval()(images), rtol=0, atol=made.tolerance)
    assert 0 < made.difference < made.tolerance
    assert str(Path(mld.__file__).parent).encode() not in made.path.read_bytes()


def test_a_file_that_differs_is_renamed_and_the_earlier_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.pt2"
    path.write_text("earlier")
    honest = torch_program.runner

    def wrong(path: Path) -> Run:
        run = honest(path)
        return lambda inputs: run(inputs) + np.float32(2e-4)

    monkeypatch.setattr(torch_program, "runner", wrong)
    with pytest.raises(CheckpointError, match=r"differs from the model by 2.0e-04 in its logits, 1.0e-04 is allowed"):
        export_model(tiny(), path, "torch")
    assert path.read_text() == "earlier"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model.pt2", "model.pt2.failed"]


@pytest.mark.parametrize("wrong", [np.full((1, 36), np.nan), np.full((7, 36), np.inf), np.zeros((1, 35))])
def test_no_number_and_another_shape_are_infinitely_far(wrong: NDArray[np.float64]) -> None:
    reference = Exportable(tiny(), Options())

    def run(_: Sequence[Array]) -> NDArray[np.float32]:
        return wrong.astype(np.float32)

    assert largest_difference(run, reference, cases(reference, (64, 64))) == float("inf")


SWIN = {"embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}
BACKBONES: list[tuple[str, dict[str, Any], bool]] = [
    ("test_resnet", {}, True),
    ("test_vit", {}, False),
    ("swin_tiny_patch4_window7_224", {"img_size": 224, "backbone_options": SWIN}, False),
    ("test_convnext", {}, True),
    ("test_efficientnet", {}, True),
    ("tresnet_m", {"img_size": 128}, True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "any_size"), BACKBONES, ids=[name for name, _, _ in BACKBONES])
def test_onnx_agrees_with_torch_on_six_backbones(
    tmp_path: Path, name: str, options: dict[str, Any], any_size: bool
) -> None:
    model = mld.create_model(name, num_classes=80, head={"kind": "ml-decoder", "num_queries": 20}, **options).eval()
    made = export_model(model, tmp_path / "model.onnx")
    assert made.any_size == any_size
    assert made.difference <= 1e-4
    run = runner(made.path)
    for batch in (1, 7):
        images = torch.randn(batch, 3, *model.config.preprocessing.size)
        with torch.no_grad():
            expected = model(images).numpy()
        assert np.abs(run([images.numpy()]) - expected).max() <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "torch", "openvino"])
@pytest.mark.parametrize(("group_size", "neighbours"), [(1, 0.0), (2, 0.0), (1, 0.7)])
def test_a_zero_shot_file_takes_vectors_of_any_number_of_labels(
    tmp_path: Path, format: Format, group_size: int, neighbours: float
) -> None:
    model = zero_shot(group_size=group_size, readout="text" if group_size > 1 else "shared")
    model.ask_neighbours(neighbours)
    suffix = {"onnx": ".onnx", "torch": ".pt2", "openvino": ".xml"}[format]
    made = export_model(model, tmp_path / f"model{suffix}", format)
    beside = np.load(made.path.with_suffix(".words.npz"))
    assert beside["labels"].tolist() == list(model.labels)
    np.testing.assert_array_equal(beside["vectors"], model.text_vectors_for(model.labels).numpy())
    run = _runner(format, made.path)
    images = torch.randn(2, 3, 64, 64)
    for count in (3, 4, 9):
        vectors = torch.randn(count, beside["vectors"].shape[1])
        with torch.no_grad():
            expected = model(images, vectors).numpy()
        np.testing.assert_allclose(run([images.numpy(), vectors.numpy()]), expected, rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_openvino_agrees_and_carries_the_metadata(tmp_path: Path, precision: Precision) -> None:
    import openvino  # type: ignore[import-untyped]

    model = tiny(head={"kind": "ml-decoder", "num_queries": 12})
    made = export_model(model, tmp_path / "model.xml", "openvino", precision=precision)
    assert made.difference <= made.tolerance
    read = openvino.Core().read_model(made.path)
    assert json.loads(read.get_rt_info(["mldecoder"]).astype(str))["labels"] == list(model.labels)
    assert made.bytes == sum(made.path.with_suffix(end).stat().st_size for end in (".xml", ".bin"))


@pytest.mark.slow
def test_lower_precision_is_smaller_and_near(tmp_path: Path) -> None:
    model = tiny(head={"kind": "ml-decoder", "num_queries": 12})
    sizes: dict[Precision, int] = {}
    precisions: tuple[Precision, ...] = ("float32", "float16", "int8")
    for precision in precisions:
        made = export_model(model, tmp_path / f"{precision}.onnx", precision=precision)
        sizes[precision] = made.bytes
    assert sizes["float16"] < 0.55 * sizes["float32"]
    assert sizes["int8"] < 0.35 * sizes["float32"]
    assert "% of the weights are int8; convolutions" in made.notes[0]


@pytest.mark.slow
def test_single_label_models_give_a_softmax_and_other_sizes_and_opsets_work(tmp_path: Path) -> None:
    model = tiny(labels=("cat", "dog", "sun"), task="single-label")
    made = export_model(model, tmp_path / "model.onnx", with_sigmoid=True, size=96, opset=18)
    images = torch.randn(7, 3, 96, 96)
    with torch.no_grad():
        expected = model(images).softmax(dim=1).numpy()
    np.testing.assert_allclose(runner(made.path)([images.numpy()]), expected, rtol=0, atol=1e-5)
    proto = onnx.load(made.path)
    assert [one.version for one in proto.opset_import if not one.domain] == [18]
    told = json.loads({one.key: one.value for one in proto.metadata_props}["mldecoder"])
    assert told["thresholds"] is None
    assert told["preprocessing"]["size"] == [96, 96]


def _runner(format: str, path: Path) -> Run:
    if format == "torch":
        return torch_program.runner(path)
    if format == "onnx":
        return runner(path)
    from mldecoder.export import openvino

    return openvino.runner(path)
