"""The map before the last one, joined to the last."""

from pathlib import Path

import pytest
import torch

import mldecoder as mld
from mldecoder.backbones import create_backbone
from mldecoder.errors import BackboneError

NAMES = ["test_resnet", "test_efficientnet", "test_convnext"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(64, 64), (72, 104)])
def test_both_maps_are_there_and_the_last_is_unchanged(name: str, size: tuple[int, int]) -> None:
    one = create_backbone(name).eval()
    both = create_backbone(name, options={"earlier_map": True}).eval()
    both.load_state_dict(one.state_dict())
    x = torch.randn(2, 3, *size)
    with torch.no_grad():
        last, joined = one(x), both(x)
        _, maps = one.model.forward_intermediates(x, indices=[-2])  # type: ignore[operator,union-attr]
    torch.testing.assert_close(joined[:, : one.num_features], last)
    assert joined.shape[1] == both.num_features == one.num_features + maps[0].shape[1]
    corner = maps[0][:, :, :2, :2].mean(dim=(2, 3))
    torch.testing.assert_close(joined[:, one.num_features :, 0, 0], corner)
    assert both.token_grid(*size) == tuple(last.shape[2:])


def test_maps_of_one_size_are_joined_as_they_are() -> None:
    backbone = create_backbone("test_resnet", options={"earlier_map": True, "output_stride": 16}).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        _, maps = backbone.model.forward_intermediates(x, indices=[-2])  # type: ignore[operator,union-attr]
        torch.testing.assert_close(backbone(x)[:, -maps[0].shape[1] :], maps[0])


def test_it_is_saved_with_the_model_and_any_head_takes_it(tmp_path: Path) -> None:
    model = mld.create_model("test_resnet", num_classes=5, head="gap", backbone_options={"earlier_map": True}).eval()
    model.save_pretrained(tmp_path)
    again, x = mld.load(tmp_path), torch.randn(1, 3, 64, 64)
    assert again.config.backbone.options == {"earlier_map": True}
    assert torch.equal(again(x), model(x))


def test_switched_off_it_changes_nothing() -> None:
    plain = create_backbone("test_resnet")
    assert create_backbone("test_resnet", options={"earlier_map": False}).num_features == plain.num_features


@pytest.mark.parametrize("name", ["test_vit", "swin_tiny_patch4_window7_224"])
def test_models_without_a_row_of_maps_say_so(name: str) -> None:
    with pytest.raises(BackboneError, match="earlier_map is for convolutional timm models"):
        create_backbone(name, options={"earlier_map": True})
