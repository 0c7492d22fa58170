import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mldecoder.backbones import create_backbone, list_backbones, wrap_backbone
from mldecoder.backbones.base import Backbone, Preprocessing, Route, lay_out
from mldecoder.errors import BackboneError


def test_the_list_holds_all_three_libraries_and_takes_patterns() -> None:
    names = list_backbones()
    assert {"resnet50", "torchvision/resnet18", "transformers/Dinov2"} <= set(names)
    assert list_backbones("torchvision/resnet1*") == [
        "torchvision/resnet101",
        "torchvision/resnet152",
        "torchvision/resnet18",
    ]
    assert all("vit_tiny" in name for name in list_backbones("*vit_tiny*"))


def test_timm_is_meant_with_and_without_its_name() -> None:
    assert create_backbone("timm/test_resnet").num_features == create_backbone("test_resnet").num_features


@pytest.mark.parametrize(
    ("name", "near"),
    [("resnet5o", "resnet50"), ("timm/tresnet", "resnet"), ("torchvision/resnet19", "torchvision/resnet18")],
)
def test_an_unknown_name_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(BackboneError, match=f"No backbone is called '{name}'. Nearest: .*{near}"):
        create_backbone(name)


def test_a_name_like_no_other_points_to_the_list() -> None:
    with pytest.raises(BackboneError, match=r"mld.list_backbones"):
        create_backbone("!!!")


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(BackboneError, match="img_size must be at least 1, got 0"):
        create_backbone("test_resnet", img_size=0)


def test_a_model_of_another_library_is_refused_with_the_way_out() -> None:
    with pytest.raises(BackboneError, match=r"got Linear. Call mld.MLDecoder\(num_classes, in_features\)"):
        wrap_backbone(nn.Linear(2, 2))


def test_pooled_features_are_refused() -> None:
    route = Route(lambda model, x: model(x.mean(dim=(2, 3))))
    with pytest.raises(BackboneError, match=r"gives pooled features of shape \(2, 5\)"):
        Backbone(nn.Linear(3, 5), route, name="mine", preprocessing=Preprocessing(size=(8, 8)))


def test_errors_are_one_line() -> None:
    with pytest.raises(BackboneError) as caught:
        create_backbone("test_resnet", pretrained=True, options={"pretrained_cfg_overlay": {"file": "none.pth"}})
    assert "\n" not in str(caught.value)
    assert "pretrained=False" in str(caught.value)


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), patch=st.integers(4, 32))
def test_tokens_of_square_patches_are_laid_out_as_they_were_cut(rows: int, columns: int, patch: int) -> None:
    assert lay_out(rows * columns, rows * patch, columns * patch) == (rows, columns)


@given(tokens=st.integers(0, 2000), side=st.integers(8, 512))
def test_a_square_picture_has_a_grid_only_where_the_cells_are_nearly_square(tokens: int, side: int) -> None:
    grid = lay_out(tokens, side, side)
    if grid is not None:
        assert grid[0] * grid[1] == tokens
        assert max(grid) < 1.25 * min(grid)
    if tokens and math.isqrt(tokens) ** 2 == tokens:
        assert grid == (math.isqrt(tokens),) * 2


def test_a_model_that_cannot_run_without_weights_is_run_for_real() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.conv(x) * (1.0 if float(next(self.parameters()).sum()) > 0 else 2.0)
            return out

    route = Route(lambda model, x: model(x))
    backbone = Backbone(Reads(), route, name="mine", preprocessing=Preprocessing(size=(6, 8)))
    assert backbone.num_features == 4
    assert backbone.token_grid(5, 7) == (5, 7)
    assert "num_features=4" in repr(backbone)
