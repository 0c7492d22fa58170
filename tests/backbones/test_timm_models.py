import copy
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from mldecoder.backbones import create_backbone, wrap_backbone
from mldecoder.errors import BackboneError

from .checks import check_shapes_and_gradients


def build(name: str, **options: Any) -> Any:  # noqa: ANN401 - timm models are untyped
    """A timm model as its users have it."""
    return timm.create_model(name, **options).eval()


@pytest.mark.parametrize(
    ("name", "img_size", "shape"),
    [
        ("test_resnet", 64, (2, 96, 2, 2)),
        ("resnet18", 64, (2, 512, 2, 2)),
        ("resnet50", 64, (2, 2048, 2, 2)),
        ("test_vit", 64, (2, 16, 64)),
        ("test_vit2", 64, (2, 16, 64)),
        ("vit_tiny_patch16_224", 32, (2, 4, 192)),
        ("deit_tiny_distilled_patch16_224", 32, (2, 4, 192)),
        ("deit3_small_patch16_224", 32, (2, 4, 384)),
        ("eva02_tiny_patch14_224", 28, (2, 4, 192)),
        ("vit_tiny_r_s16_p8_224", 64, (2, 4, 192)),
        ("swin_tiny_patch4_window7_224", 64, (2, 768, 2, 2)),
        ("test_convnext", 64, (2, 64, 2, 2)),
        ("test_efficientnet", 64, (2, 256, 2, 2)),
        ("mobilenetv3_small_050", 64, (2, 288, 2, 2)),
        ("mobilenetv4_conv_small_035", 64, (2, 336, 2, 2)),
        ("regnety_002", 64, (2, 368, 2, 2)),
        ("maxvit_pico_rw_256", 64, (2, 256, 2, 2)),
        ("tresnet_m", 64, (2, 2048, 2, 2)),
        ("test_mambaout", 64, (2, 64, 2, 2)),
        ("test_byobnet", 64, (2, 256, 2, 2)),
        ("test_nfnet", 64, (2, 192, 2, 2)),
        ("xcit_nano_12_p16_224", 32, (2, 128, 2, 2)),
        ("cait_xxs24_224", 32, (2, 192, 2, 2)),
        ("pit_ti_224", 64, (2, 4, 256)),
        ("coat_lite_tiny", 64, (2, 4, 320)),
        ("levit_128s", 64, (2, 1, 384)),
        ("efficientvit_b0", 64, (2, 1024, 2, 2)),
    ],
)
def test_a_timm_model_yields_a_map_or_tokens_and_gradients_reach_every_parameter(
    name: str, img_size: int, shape: tuple[int, ...]
) -> None:
    backbone = create_backbone(name, img_size=img_size)
    assert backbone.preprocessing.size == (img_size, img_size)
    assert check_shapes_and_gradients(backbone).shape == shape


def test_pooling_the_features_gives_what_timm_pools_where_timm_takes_the_mean() -> None:
    for name in ("test_resnet", "test_efficientnet", "swin_tiny_patch4_window7_224", "test_nfnet", "gmlp_ti16_224"):
        own = build(name, num_classes=0)
        backbone = wrap_backbone(copy.deepcopy(own)).eval()
        x = torch.randn(2, 3, *backbone.preprocessing.size)
        with torch.no_grad():
            expected = own.forward_head(own.forward_features(x), pre_logits=True)
            features = backbone(x)
        pooled = features.mean(dim=(2, 3)) if features.ndim == 4 else features.mean(dim=1)
        torch.testing.assert_close(pooled, expected, rtol=1e-4, atol=1e-5)


def scramble_norms(model: torch.nn.Module) -> None:
    """Make norms visible: fresh ones are close to doing nothing."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("test_convnext", {}),
        ("maxvit_pico_rw_256", {"head_hidden_size": 24}),
        ("davit_tiny", {}),
        ("edgenext_xx_small", {}),
        ("hiera_tiny_224", {}),
    ],
)
def test_the_final_norm_that_a_family_keeps_in_its_head_runs_at_each_position(
    name: str, options: dict[str, object]
) -> None:
    own = build(name, **options)
    scramble_norms(own)
    backbone = wrap_backbone(copy.deepcopy(own)).eval()
    x = torch.randn(1, 3, *backbone.preprocessing.size)
    with torch.no_grad():
        torch.testing.assert_close(backbone(x), own.head.norm(own.forward_features(x)))
        assert not torch.allclose(backbone(x), own.forward_features(x), atol=1e-2)


def test_a_hidden_layer_behind_the_final_norm_is_left_out() -> None:
    own = build("test_convnext", head_hidden_size=48)
    scramble_norms(own)
    backbone = wrap_backbone(copy.deepcopy(own)).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(backbone(x), own.head.norm(own.forward_features(x)))
    assert backbone.num_features == 64
    check_shapes_and_gradients(backbone, (64, 64))


def test_mobilenets_give_the_map_before_the_convolution_that_follows_pooling() -> None:
    own = build("mobilenetv3_small_050")
    backbone = wrap_backbone(copy.deepcopy(own)).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(backbone(x), own.forward_features(x))


def test_class_and_register_tokens_are_dropped_unless_kept() -> None:
    whole = build("test_vit", img_size=64, num_classes=0, reg_tokens=3)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        every = whole.forward_features(x)
        dropped = wrap_backbone(copy.deepcopy(whole)).eval()
        kept = wrap_backbone(copy.deepcopy(whole), keep_prefix_tokens=True).eval()
        assert dropped.num_prefix_tokens == kept.num_prefix_tokens == 4
        torch.testing.assert_close(kept(x), every)
        torch.testing.assert_close(dropped(x), every[:, 4:])
    assert dropped.token_grid(64, 64) == kept.token_grid(64, 64) == (4, 4)


def test_tokens_that_a_norm_meets_only_after_pooling_meet_it_one_by_one() -> None:
    own = build("test_vit", img_size=32, global_pool="avg", num_classes=0)  # fc_norm
    scramble_norms(own)
    backbone = wrap_backbone(copy.deepcopy(own)).eval()
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(backbone(x), own.fc_norm(own.forward_features(x))[:, 1:])


@pytest.mark.parametrize("name", ["cait_xxs24_224", "xcit_nano_12_p16_224"])
def test_class_attention_is_built_only_where_the_class_token_is_kept(name: str) -> None:
    dropped = create_backbone(name, img_size=32)
    kept = create_backbone(name, img_size=32, keep_prefix_tokens=True)
    count = [sum(p.numel() for p in backbone.parameters()) for backbone in (dropped, kept)]
    assert count[0] < count[1]
    assert check_shapes_and_gradients(kept).shape[1] == 5  # 2 x 2 patches and the class token


def test_attention_pools_are_removed() -> None:
    backbone = create_backbone("vit_base_patch16_siglip_224", img_size=32, options={"depth": 1})
    assert check_shapes_and_gradients(backbone).shape == (2, 4, 768)
    backbone = create_backbone("vit_pe_core_tiny_patch16_384", img_size=32)
    assert check_shapes_and_gradients(backbone).shape == (2, 4, 192)
    backbone = create_backbone("resnet50_clip", img_size=64)
    assert check_shapes_and_gradients(backbone).shape == (2, 2048, 2, 2)


@pytest.mark.parametrize("name", ["test_vit", "swin_tiny_patch4_window7_224", "test_resnet"])
def test_pictures_need_not_be_square(name: str) -> None:
    backbone = create_backbone(name, img_size=(64, 128))
    check_shapes_and_gradients(backbone)
    grid = backbone.token_grid(64, 128)
    assert grid is not None
    assert grid[1] == 2 * grid[0]


def test_crossvit_joins_its_two_branches() -> None:
    own = build("crossvit_tiny_240", num_classes=0)
    backbone = wrap_backbone(copy.deepcopy(own), keep_prefix_tokens=True).eval()
    x = torch.randn(1, 3, 240, 240)
    with torch.no_grad():
        torch.testing.assert_close(backbone(x)[:, 0], own(x))  # the class tokens
    assert backbone.token_grid(240, 240) == (20, 20)


def test_other_channels_and_options_reach_the_model() -> None:
    backbone = create_backbone("test_resnet", in_chans=5, options={"output_stride": 16})
    assert check_shapes_and_gradients(backbone, (64, 64)).shape == (2, 96, 4, 4)
    own = build("test_resnet", in_chans=1)
    assert wrap_backbone(own).in_chans == 1


def test_a_wrapped_model_keeps_its_weights_and_its_name() -> None:
    own = build("test_vit", num_classes=10, img_size=64)
    weight = own.blocks[0].attn.qkv.weight.detach().clone()
    backbone = wrap_backbone(own)
    assert backbone.name == "test_vit"
    assert backbone.preprocessing.size == (64, 64)
    torch.testing.assert_close(backbone.get_parameter("model.blocks.0.attn.qkv.weight"), weight)
    assert not any("head" in name for name, _ in backbone.named_parameters())


def test_preprocessing_is_that_of_the_weights() -> None:
    own = create_backbone("tf_efficientnet_lite0").preprocessing
    assert own.mean == own.std == (0.5, 0.5, 0.5)
    assert create_backbone("resnet18", img_size=96).preprocessing.mean == (0.485, 0.456, 0.406)


def test_weights_come_from_a_local_file(tmp_path: Path) -> None:
    own = build("test_resnet")
    save_file(own.state_dict(), tmp_path / "w.safetensors")
    overlay = {"pretrained_cfg_overlay": {"file": str(tmp_path / "w.safetensors")}}
    backbone = create_backbone("test_resnet", pretrained=True, options=overlay)
    torch.testing.assert_close(backbone.get_parameter("model.conv1.0.weight"), own.conv1[0].weight)


def test_a_state_dict_goes_into_a_second_backbone_and_gives_equal_features() -> None:
    for name in ("test_vit", "test_convnext", "xcit_nano_12_p16_224", "mobilenetv3_small_050"):
        first, second = create_backbone(name, img_size=64).eval(), create_backbone(name, img_size=64).eval()
        second.load_state_dict(first.state_dict())
        x = torch.randn(1, 3, 64, 64)
        with torch.no_grad():
            assert torch.equal(first(x), second(copy.deepcopy(x)))
            assert torch.equal(first(x), copy.deepcopy(first)(x))


def test_finding_the_shape_leaves_the_model_alone() -> None:
    own = build("levit_128s")  # keeps what it computes in evaluation
    own.stem.train()
    backbone = wrap_backbone(own)
    assert backbone.model.get_submodule("stem").training
    assert not backbone.model.get_submodule("stages").training
    backbone.eval()
    with torch.no_grad():
        assert backbone(torch.zeros(1, 3, 224, 224)).isfinite().all()


def test_options_that_are_not_the_callers_are_refused() -> None:
    with pytest.raises(BackboneError, match="must leave num_classes to create_backbone, got num_classes=3"):
        create_backbone("test_resnet", options={"num_classes": 3})
    with pytest.raises(BackboneError, match=r"timm cannot build test_resnet .*colour.*Check img_size and options"):
        create_backbone("test_resnet", options={"colour": 3})


def test_a_size_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BackboneError, match="efficientformer_l1 does not take pictures of 64 x 64 px"):
        create_backbone("efficientformer_l1", img_size=64)


def test_a_list_of_maps_is_refused() -> None:
    with pytest.raises(BackboneError, match="does not follow timm's contract"):
        wrap_backbone(timm.create_model("test_resnet", features_only=True))


def test_a_backbone_exports() -> None:
    backbone = create_backbone("test_vit", img_size=32).eval()
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        exported = torch.export.export(backbone, (x,))
        torch.testing.assert_close(exported.module()(x), backbone(x))
