import pickle
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor

import mldecoder as mld
from mldecoder.convert import head_from_state_dict, model_from_file, read_checkpoint
from mldecoder.errors import CheckpointError
from mldecoder.heads import MLDecoder
from tests.cli import run
from tests.heads.test_golden import recording


def old_head(in_features: int) -> dict[str, Tensor]:
    """The recorded head, widened at its input so that it fits a backbone."""
    state = recording("official_grouped")[1]
    state["decoder.embed_standart.weight"] = torch.randn(32, in_features) / in_features**0.5
    return state


@pytest.fixture
def old_model(tmp_path: Path) -> Path:
    """A whole model as the official scripts wrote it: head under `fc`, names beside the weights."""
    backbone = timm.create_model("test_resnet", num_classes=0)  # 96 features
    state = {f"module.{key}": value for key, value in backbone.state_dict().items()}
    state |= {f"module.fc.{key}": value for key, value in old_head(96).items()}
    path = tmp_path / "old.pth"
    torch.save({"model": state, "idx_to_class": {str(i): f"thing {i}" for i in range(101)}}, path)
    return path


def test_a_whole_model_is_converted_with_its_names(old_model: Path, tmp_path: Path) -> None:
    result = run("convert", str(old_model), str(tmp_path / "new"), "--backbone", "test_resnet", "--image-size", "160")
    assert result.returncode == 0, result.stderr
    assert "101 classes (thing 0, thing 1" in result.stdout
    model = mld.load(tmp_path / "new")
    assert model.labels[-1] == "thing 100"
    preprocessing = model.config.preprocessing
    assert (preprocessing.mean, preprocessing.size) == ((0, 0, 0), (160, 160))
    state = {key.removeprefix("module."): value for key, value in read_checkpoint(old_model)["model"].items()}
    features = timm.create_model("test_resnet", num_classes=0)
    features.load_state_dict({key: value for key, value in state.items() if not key.startswith("fc.")})
    x = torch.randn(2, 3, 96, 96)
    expected = head_from_state_dict(state).eval()(features.eval().forward_features(x))  # type: ignore[operator]
    torch.testing.assert_close(model(x), expected)


def test_official_tresnet_names_are_translated(tmp_path: Path) -> None:
    model = timm.create_model("tresnet_m", num_classes=0)
    state = {
        key.replace("body.conv1.conv", "body.conv1.0").replace("body.conv1.bn", "body.conv1.1"): value
        for key, value in model.state_dict().items()
    }
    state |= {f"head.{key}": value for key, value in old_head(2048).items()}
    torch.save({"state_dict": state}, tmp_path / "old.pth")
    converted = model_from_file(tmp_path / "old.pth", "tresnet_m").eval()
    x = torch.randn(1, 3, 64, 64)
    expected = model.eval().forward_features(x)  # type: ignore[operator]  # the translation takes |weight| + 1e-5, as the old layer did
    torch.testing.assert_close(converted.backbone(x), expected, rtol=1e-3, atol=1e-4)


def test_the_wrong_backbone_is_named(old_model: Path) -> None:
    with pytest.raises(CheckpointError, match="takes 96 features, but resnet18 gives 512"):
        model_from_file(old_model, "resnet18")
    with pytest.raises(CheckpointError, match="101 classes, but 2 names"):
        model_from_file(old_model, "test_resnet", labels=["a", "b"])


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("code ran",))


def test_a_pickle_with_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"model": Trap()}, tmp_path / "trap.pth")
    result = run("convert", str(tmp_path / "trap.pth"), str(tmp_path / "new"), "--backbone", "test_resnet")
    assert result.returncode == 1
    assert "refused" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError):
        read_checkpoint(tmp_path / "plain.pth")
    assert "code ran" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"not a file of weights", b"\x80\x02}q\x00."])
def test_junk_is_one_clear_line(content: bytes, tmp_path: Path) -> None:
    for name in ("junk.pth", "junk.safetensors"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            head_from_state_dict(read_checkpoint(tmp_path / name))
        assert "\n" not in str(caught.value)


def test_other_state_dicts_are_refused() -> None:
    with pytest.raises(CheckpointError, match="one 'duplicate_pooling', found 0"):
        head_from_state_dict(timm.create_model("test_resnet").state_dict())
    state = recording("official_full")[1]
    del state["decoder.layers.0.norm2.weight"]
    with pytest.raises(CheckpointError, match=r"norm2.weight' is missing"):
        head_from_state_dict(state)


def test_a_converted_head_goes_on_training() -> None:
    head = head_from_state_dict(recording("timm_grouped")[1])
    assert isinstance(head, MLDecoder)
    head.train()(torch.randn(2, 24, 3, 3)).sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())


def test_the_command_guards_its_output(old_model: Path, tmp_path: Path) -> None:
    result = run("convert", str(old_model), str(tmp_path), "--backbone", "test_resnet")
    assert result.returncode == 1
    assert "not empty" in result.stderr
