"""The map before the last one, pooled to its size and joined to its channels: finer features for the head.

Shapes: b batch, c and e channels of the last and the earlier map, h and w rows and columns of the last map.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mldecoder.backbones._probe import output_shape
from mldecoder.backbones._timm_families import unpooled
from mldecoder.backbones.base import Route
from mldecoder.errors import BackboneError

__all__ = ["EARLIER_MAP", "with_earlier_map", "without_ours"]

EARLIER_MAP = "earlier_map"  # the option's name; it is ours, the model does not know it


def without_ours(options: Mapping[str, object]) -> dict[str, object]:
    """The options that the model's constructor takes."""
    return {key: value for key, value in options.items() if key != EARLIER_MAP}


def with_earlier_map(model: nn.Module, route: Route, *, name: str, in_chans: int, size: tuple[int, int]) -> Route:
    """The way to both maps of a timm model, joined: ``(b, c + e, h, w)``."""
    plain = route.features is unpooled and route.map_layout == "NCHW" and hasattr(model, "forward_intermediates")
    if not plain or len(output_shape(model, route.features, name=name, in_chans=in_chans, size=size)) != 4:
        raise BackboneError(
            f"options.{EARLIER_MAP} is for convolutional timm models that yield their maps one after the other, "
            f"such as resnet50, got {name}. Leave it out."
        )
    return replace(route, features=both_maps)


def both_maps(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - timm models are untyped
    """Run the model once and keep the map of the last stage but one."""
    last, (earlier,) = model.forward_intermediates(x, indices=[-2], output_fmt="NCHW")
    last = model.forward_head(last, pre_logits=True)
    if earlier.shape[-1] != last.shape[-1]:  # with an output stride both may be equally large
        earlier = F.avg_pool2d(earlier, 2, ceil_mode=True, count_include_pad=False)
        earlier = earlier[..., : last.shape[-2], : last.shape[-1]]  # some models round odd sizes down
    return torch.cat([last, earlier], dim=1)
