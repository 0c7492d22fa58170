import json
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import nn

import mldecoder as mld
from mldecoder.errors import BackboneError, CheckpointError, ConfigError

SMALL = {"kind": "ml-decoder", "width": 32, "ff_width": 32}
NAMED = {  # what the issue of the head lists; small relatives where a family has them, 64 px where it is free to choose
    "resnet50": 64,
    "tresnet_m": 64,
    "vit_small_patch16_224": 64,
    "deit3_small_patch16_224": 64,
    "swin_tiny_patch4_window7_224": 224,
    "convnext_tiny": 64,
    "efficientnet_b0": 64,
    "regnety_004": 64,
    "mobilenetv3_small_100": 64,
    "mobilenetv4_conv_small": 64,
    "maxvit_tiny_tf_224": 224,
    "eva02_tiny_patch14_224": 56,
    "vit_tiny_r_s16_p8_224": 64,
    "torchvision/resnet18": 64,
}
TINY_DINO = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 2}


def tiny(**options: object) -> mld.Classifier:
    arguments = {"labels": ["cat", "dog", "bird"], "head": SMALL} | options
    return mld.create_model("test_resnet", **arguments)  # type: ignore[arg-type]


def check_model(model: mld.Classifier, size: int, folder: Path) -> None:
    """Output shape, a gradient for every parameter, and the same logits after saving and loading."""
    x = torch.randn(2, 3, size, size)
    logits = model.train()(x)
    assert logits.shape == (2, model.num_classes)
    logits.square().sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without
    model.eval().save_pretrained(folder)
    with torch.no_grad():
        torch.testing.assert_close(mld.load(folder)(x), model(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMED)
def test_the_families_people_use_train_and_come_back_from_disk(name: str, tmp_path: Path) -> None:
    size = NAMED[name]
    fixed = {} if name.startswith(("vit", "deit", "swin", "maxvit", "eva")) else {"img_size": None}
    model = mld.create_model(name, num_classes=13, head={**SMALL, "num_queries": 5}, **({"img_size": size} | fixed))  # type: ignore[arg-type]
    check_model(model, size, tmp_path)


def test_a_transformers_model_trains_and_comes_back_from_disk(tmp_path: Path) -> None:
    model = mld.create_model("transformers/Dinov2", 5, head=SMALL, backbone_options=TINY_DINO)
    check_model(model, 56, tmp_path)


@pytest.mark.parametrize("head", ["gap", "transformer-decoder", {"kind": "ml-decoder", "queries": "learnable"}])
def test_every_head_comes_back_from_disk(head: object, tmp_path: Path) -> None:
    check_model(tiny(head=head), 32, tmp_path)


def test_a_model_folder_is_readable(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"model.safetensors", "config.json", "README.md"}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["schema_version"] == 1
    assert config["backbone"]["name"] == "test_resnet"
    assert config["head"]["kind"] == "ml-decoder"
    assert config["labels"] == ["cat", "dog", "bird"]
    assert "cat" in (tmp_path / "README.md").read_text()


def test_half_precision_comes_back_as_it_was(tmp_path: Path) -> None:
    tiny().bfloat16().save_pretrained(tmp_path)
    assert next(mld.load(tmp_path).parameters()).dtype == torch.bfloat16


def test_the_hub_mixin_loads_a_folder(tmp_path: Path) -> None:
    model = tiny().eval()
    model.save_pretrained(tmp_path)
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(mld.Classifier.from_pretrained(tmp_path)(x), model(x))


def test_pushing_asks_the_hub_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(self: object, repo_id: str, **options: object) -> None:
        asked.append(repo_id)
        raise ConnectionError("no network in tests")

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", refuse)
    with pytest.raises(ConnectionError):
        tiny().push_to_hub("someone/model")
    assert asked == ["someone/model"]


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere/at/all", "no model at"), ("some-one/some-model", "hub does not give it"), (".", "is not a model")],
)
def test_loading_what_is_not_there_is_one_clear_line(path: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        mld.load(tmp_path if path == "." else path)


def test_broken_folders_say_what_is_broken(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for change, message in [
        ({"schema_version": 7}, "schema version 7"),
        ({"lables": []}, "Did you mean 'labels'"),
        ({"head": {"kind": "ml-decoder", "hedas": 4}}, "Did you mean 'heads'"),
        ({"labels": ["cat", "dog"]}, "does not fit"),
    ]:
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises((CheckpointError, ConfigError), match=message):
            mld.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        mld.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(CheckpointError, match="cannot be read"):
        mld.load(tmp_path)


def test_replace_head_keeps_the_backbones_weights(tmp_path: Path) -> None:
    original = timm.create_model("test_resnet", num_classes=10)
    kept = original.state_dict()["layer1.0.conv1.weight"].clone()
    model = mld.replace_head(original, num_classes=4, head=SMALL)
    assert torch.equal(model.state_dict()["backbone.model.layer1.0.conv1.weight"], kept)
    check_model(model, 32, tmp_path)
    torchvision_model = mld.replace_head(torchvision.models.resnet18(), labels=["a", "b"])
    assert torchvision_model(torch.randn(1, 3, 64, 64)).shape == (1, 2)


def test_a_backbone_that_could_not_come_back_is_not_saved(tmp_path: Path) -> None:
    model = mld.replace_head(timm.create_model("test_resnet", stem_width=8), num_classes=4, head=SMALL)
    with pytest.raises(CheckpointError, match="backbone_options"):
        model.save_pretrained(tmp_path)


def test_a_foreign_module_is_refused() -> None:
    with pytest.raises(BackboneError):
        mld.replace_head(nn.Linear(3, 3), num_classes=4)


def test_labels_can_be_added_and_removed_and_the_others_keep_their_logits(tmp_path: Path) -> None:
    for head in (SMALL, {**SMALL, "num_queries": 2}, "gap"):
        model = tiny(head=head).eval()
        x = torch.randn(2, 3, 32, 32)
        before = model(x)
        model.add_labels(["fish", "ant"])
        assert model.labels == ("cat", "dog", "bird", "fish", "ant")
        torch.testing.assert_close(model(x)[:, :3], before)
        model.remove_labels(["cat", "fish"])
        torch.testing.assert_close(model(x)[:, :2], before[:, 1:])
        check_model(model, 32, tmp_path / str(head))
    with pytest.raises(ConfigError, match="already"):
        model.add_labels(["dog"])
    with pytest.raises(ConfigError, match="no label 'cow'"):
        model.remove_labels(["cow"])


def test_reset_classifier_puts_a_fresh_head_on(tmp_path: Path) -> None:
    model = tiny(head={**SMALL, "num_queries": 3})
    model.reset_classifier(200)
    assert model.num_classes == 200
    check_model(model, 32, tmp_path)
    model.reset_classifier(["x", "y"], head="gap")
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": None}, "Say what to score"),
        ({"labels": []}, "at least one"),
        ({"labels": ["a", "a"]}, "'a' twice"),
        ({"labels": None, "num_classes": 0}, "at least 1"),
        ({"num_classes": 5}, "does not fit the 3 labels"),
        ({"head": "ml-decodr"}, "one of ml-decoder"),
        ({"head": {"kind": "gap", "width": 5}}, "unknown key 'width'"),
        ({"head": {"kind": "ml-decoder", "heads": "many"}}, "heads"),
    ],
)
def test_wrong_arguments_are_one_clear_line(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        tiny(**arguments)
    assert "\n" not in str(caught.value)


def test_loading_never_unpickles(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="not a model"):
        mld.load(tmp_path)
    save_file(state, tmp_path / "model.safetensors")
    mld.load(tmp_path)
