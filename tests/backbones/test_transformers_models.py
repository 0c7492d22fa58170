from pathlib import Path

import pytest
import torch

from mldecoder.backbones import create_backbone, wrap_backbone
from mldecoder.errors import BackboneError

from .checks import check_shapes_and_gradients

transformers = pytest.importorskip("transformers")

VIT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "patch_size": 16}
DINO = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_ratio": 2, "patch_size": 16}
STAGES = {"depths": [1, 1], "hidden_sizes": [8, 16]}
SWIN = {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("Dinov2", DINO, (2, 16, 16)),
        ("Dinov2WithRegisters", DINO, (2, 16, 16)),
        ("DINOv3ViT", VIT | {"num_register_tokens": 2}, (2, 16, 16)),
        ("ViT", VIT, (2, 16, 16)),
        ("ViTMSN", VIT, (2, 16, 16)),
        ("IJepa", VIT, (2, 16, 16)),
        ("DeiT", VIT, (2, 16, 16)),
        ("Beit", VIT | {"use_mean_pooling": True}, (2, 16, 16)),
        ("Beit", VIT | {"use_mean_pooling": False}, (2, 16, 16)),
        ("CLIPVision", VIT, (2, 16, 16)),
        ("SiglipVision", VIT, (2, 16, 16)),
        ("Swin", SWIN, (2, 64, 16)),
        ("Swinv2", SWIN, (2, 64, 16)),
        ("ConvNext", STAGES | {"num_stages": 2}, (2, 16, 8, 8)),
        ("ConvNextV2", STAGES | {"num_stages": 2}, (2, 16, 8, 8)),
        ("ResNet", STAGES | {"embedding_size": 8}, (2, 16, 8, 8)),
        ("RegNet", STAGES | {"embedding_size": 8, "groups_width": 8}, (2, 16, 8, 8)),
    ],
)
def test_a_transformers_model_yields_a_map_or_tokens_and_gradients_reach_every_parameter(
    name: str, options: dict[str, object], shape: tuple[int, ...]
) -> None:
    backbone = create_backbone(f"transformers/{name}", img_size=64, options=options)
    assert check_shapes_and_gradients(backbone).shape == shape
    again = create_backbone(backbone.name, options=backbone.options)
    again.load_state_dict(backbone.state_dict())
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(again.eval()(x), backbone.eval()(x))


@pytest.mark.parametrize(("name", "options"), [("Dinov2", DINO), ("ViT", VIT), ("DeiT", VIT)])
def test_transformers_vits_take_other_sizes_than_they_were_built_for(name: str, options: dict[str, object]) -> None:
    backbone = create_backbone(f"transformers/{name}", img_size=64, options=options, keep_prefix_tokens=True)
    assert backbone(torch.zeros(1, 3, 32, 96)).shape[1] == 2 * 6 + backbone.num_prefix_tokens
    assert backbone.token_grid(32, 96) == (2, 6)


def test_a_classifier_of_transformers_is_wrapped_without_its_head() -> None:
    own = transformers.Dinov2ForImageClassification(transformers.Dinov2Config(image_size=64, **DINO)).eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        hidden = own.dinov2(x).last_hidden_state
        backbone = wrap_backbone(own).eval()
        torch.testing.assert_close(backbone(x), hidden[:, 1:])
    assert backbone.name == "transformers/Dinov2"
    check_shapes_and_gradients(backbone)


def test_the_norm_before_the_pooled_output_of_convnext_runs_at_each_position() -> None:
    own = transformers.ConvNextModel(transformers.ConvNextConfig(num_stages=2, **STAGES)).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        own.layernorm.weight.normal_()
        expected = own.layernorm(own(x).last_hidden_state.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        torch.testing.assert_close(wrap_backbone(own).eval()(x), expected)


def test_of_a_model_of_pictures_and_text_the_picture_half_is_taken(tmp_path: Path) -> None:
    config = transformers.CLIPConfig()
    config.vision_config = transformers.CLIPVisionConfig(image_size=32, **VIT)
    config.text_config = transformers.CLIPTextConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=49408
    )
    own = transformers.CLIPModel(config).eval()
    own.save_pretrained(tmp_path)
    backbone = create_backbone(f"transformers/{tmp_path}", pretrained=True).eval()
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        vision = own.vision_model
        expected = vision.post_layernorm(vision(x).last_hidden_state)[:, 1:]
        torch.testing.assert_close(backbone(x), expected)
    check_shapes_and_gradients(backbone)


def test_a_folder_gives_weights_and_preprocessing(tmp_path: Path) -> None:
    own = transformers.ViTModel(transformers.ViTConfig(image_size=32, **VIT)).eval()
    own.save_pretrained(tmp_path)
    transformers.ViTImageProcessor(
        size={"height": 32, "width": 32}, image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6], resample=2
    ).save_pretrained(tmp_path)
    backbone = create_backbone(f"transformers/{tmp_path}", pretrained=True).eval()
    assert backbone.preprocessing.size == (32, 32)
    assert backbone.preprocessing.mean == (0.1, 0.2, 0.3)
    assert backbone.preprocessing.interpolation == "bilinear"
    assert (backbone.name, backbone.options["hidden_size"]) == ("transformers/ViT", 16)  # needs no folder any more
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(backbone(x), own(x).last_hidden_state[:, 1:])


def test_what_transformers_cannot_build_is_said() -> None:
    with pytest.raises(BackboneError, match=r"no Dinov22Config.*Use one of Dinov2"):
        create_backbone("transformers/Dinov22")
    with pytest.raises(BackboneError, match="config class without weights"):
        create_backbone("transformers/Dinov2", pretrained=True)
    with pytest.raises(BackboneError, match="options must be fields of Dinov2Config, got 'colour'"):
        create_backbone("transformers/Dinov2", options={"colour": 1})
