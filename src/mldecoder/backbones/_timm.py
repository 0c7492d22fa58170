"""timm models as backbones."""

import inspect
from collections.abc import Mapping
from typing import Any, cast

import timm
import torch
from timm.data.config import resolve_model_data_config
from torch import nn

from mldecoder.backbones._timm_families import family_of, unpooled
from mldecoder.backbones.base import Preprocessing, Route, remove_parts
from mldecoder.errors import BackboneError

__all__ = ["create", "cut", "in_chans_of", "list_names", "name_of", "preprocessing_of"]

OURS = ("num_classes", "global_pool", "features_only", "pretrained", "in_chans", "img_size")


def list_names() -> list[str]:
    """Every timm model, by the name that timm gives it."""
    return list(timm.list_models())


def create(
    name: str,
    *,
    pretrained: bool,
    img_size: tuple[int, int] | None,
    in_chans: int,
    options: Mapping[str, object],
) -> nn.Module:
    """Build the timm model of this name without a classifier."""
    for key in OURS:
        if key in options:
            raise BackboneError(f"options must leave {key} to create_backbone, got {key}={options[key]!r}.")
    arguments: dict[str, Any] = {"num_classes": 0, "in_chans": in_chans, **options}
    try:
        if img_size is not None:
            with torch.device("meta"):  # costs no memory and no time for initialisation
                draft = timm.create_model(name, **arguments)
            if takes_img_size(draft):
                arguments["img_size"] = img_size
        model: nn.Module = timm.create_model(name, pretrained=pretrained, **arguments)
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BackboneError(f"timm cannot build {name} ({what}). {way_out(pretrained)}") from error
    return model


def way_out(pretrained: bool) -> str:
    """What to do when timm refuses."""
    if pretrained:
        return "Without a network use pretrained=False, or options={'pretrained_cfg_overlay': {'file': path}}."
    return "Check img_size and options against the arguments of the timm model."


def takes_img_size(model: nn.Module) -> bool:
    """Whether the size of the pictures is built into models of this class."""
    return any("img_size" in inspect.signature(cls).parameters for cls in type(model).__mro__[:-2])


def cut(model: nn.Module, *, keep_prefix_tokens: bool) -> Route:
    """Remove the classifier of a timm model in place, and return the way to its features."""
    family = family_of(model)
    if keep_prefix_tokens and family.with_prefix is not None:
        family = family.with_prefix
    body: Any = model
    try:
        if family.features is unpooled:
            body.reset_classifier(0, global_pool="")
        remove_parts(model, family.remove)
    except (AssertionError, AttributeError, NotImplementedError, TypeError) as error:
        raise BackboneError(
            f"{name_of(model)} does not follow timm's contract: its head cannot be removed ({error!r}). "
            f"Call mld.MLDecoder on features of your own."
        ) from error
    # timm's own default where a model does not say: no prefix, and maps with channels first.
    prefix = family.num_prefix_tokens
    if callable(prefix):
        prefix = prefix(model)
    elif prefix is None:
        prefix = int(getattr(model, "num_prefix_tokens", 0))
    layout = getattr(model, "output_fmt", "NCHW")
    return Route(
        family.features,
        map_layout="NHWC" if str(layout) == "NHWC" else "NCHW",
        num_prefix_tokens=prefix,
        grid=family.grid(model) if callable(family.grid) else family.grid,
    )


def name_of(model: nn.Module) -> str:
    """The name that builds a model of this architecture."""
    config = getattr(model, "pretrained_cfg", None) or {}
    return str(config.get("architecture") or type(model).__name__)


def in_chans_of(model: nn.Module) -> int:
    """The channels that the model's first convolution takes; timm's config names that layer."""
    first: object = (getattr(model, "pretrained_cfg", None) or {}).get("first_conv")
    names = [first] if isinstance(first, str) else list(first) if isinstance(first, tuple | list) else []
    for name in names:
        layer = dict(model.named_modules()).get(name)
        if isinstance(layer, nn.Conv2d):
            return layer.in_channels
    return 3


def preprocessing_of(model: nn.Module, img_size: tuple[int, int] | None) -> Preprocessing:
    """What the model's weights were trained on; ``img_size`` goes before the model's own size."""
    config: dict[str, Any] = cast(Any, resolve_model_data_config)(model)
    # timm's patch embedding knows the size that a model was built for; the config, that of its weights.
    built_for = getattr(dict(model.named_children()).get("patch_embed"), "img_size", None)
    height, width = img_size or built_for or config["input_size"][-2:]
    return Preprocessing(
        size=(int(height), int(width)),
        mean=tuple(float(v) for v in config["mean"]),
        std=tuple(float(v) for v in config["std"]),
        interpolation=str(config["interpolation"]),
        crop_pct=float(config["crop_pct"]),
    )
