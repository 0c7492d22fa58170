"""Vision models of transformers as backbones; transformers is imported only when one is asked for."""

import difflib
import inspect
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mldecoder.backbones.base import Preprocessing, Route, remove_parts
from mldecoder.errors import BackboneError

__all__ = ["NAMES", "create", "cut", "describe", "in_chans_of", "list_names", "picture_half", "preprocessing_of"]

# Tested config classes: "Dinov2" stands for Dinov2Config and its model.
NAMES = (
    "Beit", "CLIPVision", "ConvNext", "ConvNextV2", "DeiT", "Dinov2", "Dinov2WithRegisters", "DINOv3ViT", "PvtV2",
    "RegNet", "ResNet", "SiglipVision", "Swin", "Swinv2", "ViT",
)  # fmt: skip

# Class and distillation tokens in front of the picture's own, by model type; registers are in the config.
# Of other types, the tokens that do not fit a grid over the picture are taken for such.
PREFIX_TOKENS = {
    "beit": 1,
    "clip_vision_model": 1,
    "data2vec-vision": 1,
    "deit": 2,
    "dinov2": 1,
    "dinov2_with_registers": 1,
    "dinov3_vit": 1,
    "siglip_vision_model": 0,
    "swin": 0,
    "swinv2": 0,
    "vit": 1,
    "vit_msn": 1,
}

# A final norm that the model runs only on what it pools; it runs at each position here.
FINAL_NORM = {"clip_vision_model": "post_layernorm", "convnext": "layernorm", "convnextv2": "layernorm"}


# Fields of a config that say nothing about the body of the model.
NOT_ARCHITECTURE = (
    "_name_or_path", "architectures", "dtype", "id2label", "label2id", "model_type", "num_labels", "out_features",
    "out_indices", "problem_type", "stage_names", "torch_dtype", "transformers_version",
)  # fmt: skip


def hidden_state(interpolate: bool, norm: str | None, model: nn.Module, x: Tensor) -> Tensor:
    """The last hidden state, with the final norm where the model keeps it for its pooled output."""
    out = model(pixel_values=x, interpolate_pos_encoding=True) if interpolate else model(pixel_values=x)
    x = out.last_hidden_state
    if norm is None:
        return x
    layer = model.get_submodule(norm)
    if x.ndim == 4:
        return torch.permute(layer(x.permute(0, 2, 3, 1)), (0, 3, 1, 2))  # LayerNorm takes channels last
    return torch.as_tensor(layer(x))


def list_names() -> list[str]:
    """The config classes that build a model without files; a hub id or a folder works as well."""
    return list(NAMES)


def import_transformers() -> Any:  # noqa: ANN401
    """Import the library or say which extra brings it."""
    try:
        import transformers
    except ImportError as error:
        raise BackboneError(
            "transformers/... backbones need transformers, which is not installed. pip install 'mldecoder[text]'"
        ) from error
    return transformers


def create(
    name: str,
    *,
    pretrained: bool,
    img_size: tuple[int, int] | None,
    in_chans: int,
    options: Mapping[str, object],
) -> nn.Module:
    """Build a model from a config class (``Dinov2``), a folder or a hub id; options are fields of its config."""
    transformers = import_transformers()
    try:
        config = config_of(transformers, name, pretrained, dict(options), in_chans)
        if pretrained:
            model: nn.Module = transformers.AutoModel.from_pretrained(name, config=config)
        else:
            if img_size is not None and "image_size" in config.to_dict():
                config.image_size = img_size if img_size[0] != img_size[1] else img_size[0]
            model = transformers.AutoModel.from_config(config)
    except BackboneError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        way = "Without a network give a local folder, or a config class such as transformers/Dinov2."
        raise BackboneError(f"transformers cannot build {name} ({what}) {way}") from error
    return model


def config_of(
    transformers: Any,  # noqa: ANN401
    name: str,
    pretrained: bool,
    options: dict[str, object],
    in_chans: int,
) -> Any:  # noqa: ANN401
    """The config of this name with the options filled in; of a model of pictures and text, the picture half."""
    files = "/" in name or Path(name).exists()
    config_class = None if files else getattr(transformers, f"{name}Config", None)
    if config_class is None and not files:
        near = difflib.get_close_matches(name, NAMES, n=3)
        raise BackboneError(
            f"transformers has no {name}Config, and there is no folder {name!r}. "
            f"Use one of {', '.join(near or NAMES)}, or a hub id such as facebook/dinov2-small."
        )
    if config_class is None:
        config = transformers.AutoConfig.from_pretrained(name)
    elif pretrained:
        raise BackboneError(
            f"transformers/{name} is a config class without weights. Give a hub id such as facebook/dinov2-small."
        )
    else:
        config = config_class()
    if not pretrained:
        config = getattr(config, "vision_config", config)
    if in_chans != 3:
        options = {"num_channels": in_chans, **options}
    known = config.to_dict()
    for key in options:
        if key not in known:
            raise BackboneError(f"options must be fields of {type(config).__name__}, got {key!r}.")
    if config_class is not None:  # through the constructor, where one field may follow from another
        return config_class(**options)
    for key, value in options.items():
        setattr(config, key, value)
    return config


def picture_half(model: nn.Module) -> nn.Module:
    """The body of a classifier, or the vision half of a model of pictures and text."""
    whole: Any = model
    bodies = import_transformers().MODEL_MAPPING.get(type(whole.config), ())
    body: nn.Module = model if isinstance(model, bodies) else whole.base_model
    return dict(body.named_children()).get("vision_model", body)


def cut(model: nn.Module) -> Route:
    """Remove what serves pooling and masking only, in place, and return the way to the last hidden state."""
    body: Any = model
    kind = str(body.config.model_type)
    norm = FINAL_NORM.get(kind)
    if kind in ("beit", "data2vec-vision") and body.config.use_mean_pooling and body.pooler is not None:
        norm = "pooler.layernorm"
    elif "add_pooling_layer" in inspect.signature(type(body).__init__).parameters:
        body.pooler = None
    if kind == "siglip_vision_model":  # attention pools the tokens
        remove_parts(body, ("head",))
    remove_parts(body, [n for n, _ in body.named_parameters() if n.endswith("mask_token")])  # pre-training only
    interpolate = "interpolate_pos_encoding" in inspect.signature(body.forward).parameters
    prefix = PREFIX_TOKENS.get(kind)
    if prefix is not None:
        prefix += int(getattr(body.config, "num_register_tokens", 0))
    return Route(partial(hidden_state, interpolate, norm), num_prefix_tokens=prefix)


def describe(model: nn.Module) -> tuple[str, dict[str, object]]:
    """The config class of a model and the fields that differ from its defaults: these build it without files."""
    whole: Any = model
    config = whole.config
    defaults = type(config)().to_dict()
    fields = {
        key: value
        for key, value in config.to_dict().items()
        if key not in NOT_ARCHITECTURE and key in defaults and value != defaults[key]
    }
    return type(config).__name__.removesuffix("Config"), fields


def in_chans_of(model: nn.Module) -> int:
    """The channels that the model's config asks for."""
    whole: Any = model
    return int(getattr(whole.config, "num_channels", 3))


def preprocessing_of(model: nn.Module, *, files: str | None, img_size: tuple[int, int] | None) -> Preprocessing:
    """The settings of the image processor in the model's folder; ImageNet's where there is none."""
    body: Any = model
    side = getattr(body.config, "image_size", 224)
    own = (int(side[0]), int(side[1])) if isinstance(side, list | tuple) else (int(side), int(side))
    plain = Preprocessing(size=img_size or own)
    if files is None:
        return plain
    try:
        processor = import_transformers().AutoImageProcessor.from_pretrained(files)
    except (OSError, ValueError):
        return plain
    size, crop = dict(processor.size), dict(getattr(processor, "crop_size", None) or {})
    cut_to = (crop["height"], crop["width"]) if getattr(processor, "do_center_crop", False) and crop else None
    short = int(size.get("shortest_edge") or size.get("height") or own[0])
    trained = cut_to or (size.get("height") or short, size.get("width") or short)
    return Preprocessing(
        size=img_size or (int(trained[0]), int(trained[1])),
        mean=tuple(processor.image_mean),
        std=tuple(processor.image_std),
        interpolation={0: "nearest", 2: "bilinear", 3: "bicubic"}.get(int(processor.resample), "bicubic"),
        crop_pct=round(cut_to[0] / short, 4) if cut_to else 1.0,
    )
