"""From a name, or from a model that is already there, to a backbone."""

import difflib
from collections.abc import Mapping
from fnmatch import fnmatch

import timm
from torch import nn

from mldecoder.backbones import _timm, _torchvision, _transformers
from mldecoder.backbones._earlier_map import EARLIER_MAP, with_earlier_map, without_ours
from mldecoder.backbones.base import Backbone
from mldecoder.errors import BackboneError

__all__ = ["create_backbone", "list_backbones", "wrap_backbone"]

TIMM_SOURCES = ("hf-hub:", "hf_hub:", "local-dir:")  # where timm itself may look for a model


def create_backbone(
    name: str,
    *,
    pretrained: bool = False,
    img_size: int | tuple[int, int] | None = None,
    in_chans: int = 3,
    keep_prefix_tokens: bool = False,
    options: Mapping[str, object] | None = None,
) -> Backbone:
    """Build a backbone that yields a map or tokens.

    Args:
        name: A timm name (``resnet50``, ``timm/resnet50``), ``torchvision/resnet18``, or for transformers a hub id,
            a folder or a config class (``transformers/facebook/dinov2-small``, ``transformers/Dinov2``).
        pretrained: Load the library's weights for this name.
        img_size: Height and width of the pictures; one number for square ones. None is the model's own size.
        in_chans: Channels of the pictures.
        keep_prefix_tokens: Keep the class and register tokens of transformers in front of the others.
        options: Arguments of the timm or torchvision model, or fields of the transformers config. ``earlier_map=True``
            is ours: a convolutional timm model then joins the map before the last one, pooled, to the last.

    Example:
        >>> backbone = create_backbone("test_vit", img_size=64)
        >>> backbone(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 16, 64])
    """
    size = (img_size, img_size) if isinstance(img_size, int) else img_size
    if size is not None and min(size) < 1:
        raise BackboneError(f"img_size must be at least 1, got {img_size}. Leave it out for the model's own size.")
    library, short = split_name(name)
    options = dict(options or {})
    if library == "timm":
        own = without_ours(options)
        model = _timm.create(short, pretrained=pretrained, img_size=size, in_chans=in_chans, options=own)
        preprocessing = _timm.preprocessing_of(model, size)
        route = _timm.cut(model, keep_prefix_tokens=keep_prefix_tokens)
        if options.get(EARLIER_MAP):
            route = with_earlier_map(model, route, name=name, in_chans=in_chans, size=preprocessing.size)
    elif library == "torchvision":
        model = _torchvision.create(short, pretrained=pretrained, img_size=size, in_chans=in_chans, options=options)
        preprocessing = _torchvision.preprocessing_of(short, model, size)
        route = _torchvision.cut(model)
    else:
        model = _transformers.picture_half(
            _transformers.create(short, pretrained=pretrained, img_size=size, in_chans=in_chans, options=options)
        )
        preprocessing = _transformers.preprocessing_of(model, files=short if pretrained else None, img_size=size)
        route = _transformers.cut(model)
        short, options = _transformers.describe(model)
        name = f"transformers/{short}"
    return Backbone(
        model,
        route,
        name=name,
        preprocessing=preprocessing,
        in_chans=in_chans,
        keep_prefix_tokens=keep_prefix_tokens,
        options=options,
    )


def wrap_backbone(model: nn.Module, *, keep_prefix_tokens: bool = False) -> Backbone:
    """Make a backbone of a timm, torchvision or transformers model and keep its weights.

    The model is taken over: its classifier is removed in place. Name, size and statistics of the pictures are told
    from the model; further arguments of its constructor are not.

    Args:
        model: A model with or without its classifier.
        keep_prefix_tokens: Keep the class and register tokens of transformers in front of the others.
    """
    library = library_of(model)
    options: dict[str, object] = {}
    in_chans = 3
    if library == "timm":
        name = _timm.name_of(model)
        in_chans = _timm.in_chans_of(model)
        preprocessing = _timm.preprocessing_of(model, None)
        route = _timm.cut(model, keep_prefix_tokens=keep_prefix_tokens)
    elif library == "torchvision":
        short = _torchvision.name_of(model)
        name = f"torchvision/{short}"
        preprocessing = _torchvision.preprocessing_of(short, model, None)
        route = _torchvision.cut(model)
    else:
        model = _transformers.picture_half(model)
        short, options = _transformers.describe(model)
        name = f"transformers/{short}"
        in_chans = _transformers.in_chans_of(model)
        preprocessing = _transformers.preprocessing_of(model, files=None, img_size=None)
        route = _transformers.cut(model)
    return Backbone(
        model,
        route,
        name=name,
        preprocessing=preprocessing,
        in_chans=in_chans,
        keep_prefix_tokens=keep_prefix_tokens,
        options=options,
    )


def list_backbones(pattern: str = "*") -> list[str]:
    """Names that ``create_backbone`` takes and that match a shell pattern, timm's first.

    Beside these it takes timm's pretrained tags (``resnet50.a1_in1k``) and any hub id or folder of transformers.
    """
    names = [
        *_timm.list_names(),
        *(f"torchvision/{name}" for name in _torchvision.list_names()),
        *(f"transformers/{name}" for name in _transformers.list_names()),
    ]
    return [name for name in names if fnmatch(name, pattern)]


def split_name(name: str) -> tuple[str, str]:
    """Tell the library from a name, and check names that can be checked; the nearest ones help with typos."""
    library, _, short = name.partition("/")
    if library == "transformers" and short:
        return library, short
    if library == "torchvision":
        if short in _torchvision.list_names():
            return library, short
    else:
        short = name.removeprefix("timm/")
        if short.startswith(TIMM_SOURCES) or timm.is_model(short):
            return "timm", short
    near = difflib.get_close_matches(name.removeprefix("timm/"), list_backbones(), n=3)
    hint = f"Nearest: {', '.join(near)}." if near else "mld.list_backbones() shows the names."
    raise BackboneError(f"No backbone is called {name!r}. {hint}")


def library_of(model: nn.Module) -> str:
    """The library that a model's class, or one it inherits from, belongs to."""
    for cls in type(model).__mro__:
        library = cls.__module__.partition(".")[0]
        if library in ("timm", "torchvision", "transformers"):
            return library
    raise BackboneError(
        f"A backbone must be a timm, torchvision or transformers model, got {type(model).__name__}. "
        f"Call mld.MLDecoder(num_classes, in_features) on the features of your own model."
    )
