"""torchvision's classification models as backbones.

torchvision has no common way to unpooled features; one row a class says which parts lead to them. A final norm that
the family keeps in its classifier (ConvNeXt, MaxViT) runs at each position.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from mldecoder.backbones.base import Layout, Preprocessing, Route, remove_parts
from mldecoder.errors import BackboneError

__all__ = ["create", "cut", "list_names", "name_of", "preprocessing_of"]


def run_parts(parts: tuple[str, ...], model: nn.Module, x: Tensor) -> Tensor:
    """Run the named parts of a model one after the other."""
    for part in parts:
        x = model.get_submodule(part)(x)
    return x


def densenet(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - torchvision models are untyped
    """The last activation is a function, not a part."""
    return F.relu(model.features(x))


def inception(parts: tuple[str, ...], model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """These two may rescale their input first, where their weights were trained so."""
    return run_parts(parts, model, model._transform_input(x))


def maxvit(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """Blocks are a list, and the final norm takes channels last."""
    x = model.stem(x)
    for block in model.blocks:
        x = block(x)
    out: Tensor = model.classifier[2](x.permute(0, 2, 3, 1))
    return out


def vit(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """Cut into patches, put the class token first, encode; the encoder ends with its norm."""
    x = model._process_input(x)
    out: Tensor = model.encoder(torch.cat([model.class_token.expand(x.shape[0], -1, -1), x], dim=1))
    return out


@dataclass(frozen=True)
class Family:
    """The way to the features, and what is not on it."""

    features: Callable[[Any, Tensor], Tensor]
    remove: tuple[str, ...]
    map_layout: Layout = "NCHW"
    num_prefix_tokens: int = 0


def parts(*names: str) -> Callable[[Any, Tensor], Tensor]:
    """A way that is a plain sequence of parts."""
    return partial(run_parts, names)


GOOGLENET = (
    "conv1 maxpool1 conv2 conv3 maxpool2 inception3a inception3b maxpool3 inception4a inception4b inception4c "
    "inception4d inception4e maxpool4 inception5a inception5b"
)
INCEPTION = (
    "Conv2d_1a_3x3 Conv2d_2a_3x3 Conv2d_2b_3x3 maxpool1 Conv2d_3b_1x1 Conv2d_4a_3x3 maxpool2 Mixed_5b Mixed_5c "
    "Mixed_5d Mixed_6a Mixed_6b Mixed_6c Mixed_6d Mixed_6e Mixed_7a Mixed_7b Mixed_7c"
)

FAMILIES: dict[str, Family] = {
    "AlexNet": Family(parts("features"), ("classifier",)),
    "ConvNeXt": Family(parts("features", "classifier.0"), ("classifier.2",)),
    "DenseNet": Family(densenet, ("classifier",)),
    "EfficientNet": Family(parts("features"), ("classifier",)),
    "GoogLeNet": Family(partial(inception, tuple(GOOGLENET.split())), ("aux1", "aux2", "fc")),
    "Inception3": Family(partial(inception, tuple(INCEPTION.split())), ("AuxLogits", "fc")),
    "MNASNet": Family(parts("layers"), ("classifier",)),
    "MaxVit": Family(maxvit, ("classifier.3", "classifier.5"), "NHWC"),
    "MobileNetV2": Family(parts("features"), ("classifier",)),
    "MobileNetV3": Family(parts("features"), ("classifier",)),
    "RegNet": Family(parts("stem", "trunk_output"), ("fc",)),
    "ResNet": Family(parts("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"), ("fc",)),
    "ShuffleNetV2": Family(parts("conv1", "maxpool", "stage2", "stage3", "stage4", "conv5"), ("fc",)),
    "SqueezeNet": Family(parts("features"), ("classifier",)),
    "SwinTransformer": Family(parts("features", "norm"), ("head",), "NHWC"),
    "VGG": Family(parts("features"), ("classifier",)),
    "VisionTransformer": Family(vit, ("heads",), num_prefix_tokens=1),
}


def list_names() -> list[str]:
    """Every classification model of torchvision."""
    return list(torchvision.models.list_models(module=torchvision.models))


def family_of(model: nn.Module) -> Family:
    """The row of a torchvision model."""
    for cls in type(model).__mro__:
        if cls.__name__ in FAMILIES and cls.__module__.startswith("torchvision."):
            return FAMILIES[cls.__name__]
    raise BackboneError(
        f"torchvision models must be one of {', '.join(sorted(FAMILIES))}, got {type(model).__name__}. "
        f"Take a classification model, or call mld.MLDecoder on features of your own."
    )


def create(
    name: str,
    *,
    pretrained: bool,
    img_size: tuple[int, int] | None,
    in_chans: int,
    options: Mapping[str, object],
) -> nn.Module:
    """Build the torchvision model of this name; ``pretrained`` takes its best weights."""
    if in_chans != 3:
        raise BackboneError(f"torchvision models take 3 channels, got in_chans={in_chans}. Take a timm model.")
    arguments: dict[str, Any] = dict(options)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The default weight initialization")  # of a coming release
            if img_size is not None:
                arguments |= size_argument(name, img_size)
            model: nn.Module = torchvision.models.get_model(
                name, weights="DEFAULT" if pretrained else None, **arguments
            )
    except BackboneError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        way = "Without a network use pretrained=False." if pretrained else "Check img_size and options."
        raise BackboneError(f"torchvision cannot build {name} ({what}). {way}") from error
    return model


def module_of(name: str) -> str:
    """The file of torchvision that a model is built in."""
    return str(torchvision.models.get_model_builder(name).__module__).rpartition(".")[2]


def size_argument(name: str, img_size: tuple[int, int]) -> dict[str, object]:
    """The constructor's argument for the picture size, for the two families that have one."""
    if module_of(name) == "vision_transformer":
        if img_size[0] != img_size[1]:
            raise BackboneError(f"torchvision's {name} takes square pictures, got img_size={img_size}.")
        return {"image_size": img_size[0]}
    return {"input_size": img_size} if module_of(name) == "maxvit" else {}


def cut(model: nn.Module) -> Route:
    """Remove the classifier of a torchvision model in place, and return the way to its features."""
    family = family_of(model)
    remove_parts(model, family.remove)
    return Route(family.features, family.map_layout, family.num_prefix_tokens)


def name_of(model: nn.Module) -> str:
    """The name that builds this model: a torchvision model does not know it, but its size tells.

    Weights say how many parameters their model has, with a last layer for 1000 classes. The name of the class comes
    back where no name fits, for a model of other sizes than torchvision's own.
    """
    names = [name for name in list_names() if module_of(name) == type(model).__module__.rpartition(".")[2]]
    if len(names) == 1:
        return names[0]
    last = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)][-1]
    other = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in last.parameters())
    total = other + 1000 * (last.weight[0].numel() + (last.bias is not None))
    for name in names:
        if any(weights.meta["num_params"] == total for weights in torchvision.models.get_model_weights(name)):
            return name
    return type(model).__name__


def preprocessing_of(name: str, model: nn.Module, img_size: tuple[int, int] | None) -> Preprocessing:
    """The transforms of the model's best weights; ImageNet's where there are none."""
    own_size = getattr(model, "image_size", None)  # of VisionTransformer
    try:
        transforms = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    except (AttributeError, ValueError):  # no weights, or a class instead of a name
        side = own_size or 224
        return Preprocessing(size=img_size or (side, side))
    crop, resize = int(transforms.crop_size[0]), int(transforms.resize_size[0])
    side = own_size or crop
    return Preprocessing(
        size=img_size or (side, side),
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
        interpolation=str(transforms.interpolation.value),
        crop_pct=round(crop / resize, 4),
    )
