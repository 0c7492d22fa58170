"""What shape comes out of a model, found without computing anything."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mldecoder.errors import BackboneError

__all__ = ["output_shape"]

Features = Callable[[Any, Tensor], Tensor]


def output_shape(
    model: nn.Module, features: Features, *, name: str, in_chans: int, size: tuple[int, int]
) -> tuple[int, ...]:
    """Return the shape of ``features(model, x)`` for two pictures of this size.

    The model runs on the meta device, as a copy without weights. The few models that cannot run there
    (they make tensors on the CPU by hand, or read values) run for real, on one picture.
    """
    try:
        twin = weightless_copy(model).eval()
        with torch.no_grad(), torch.device("meta"):
            out = features(twin, torch.empty(2, in_chans, *size, dtype=dtype_of(model)))
    except Exception:  # whatever it was, the real run below says it better
        out = run_once(model, features, name=name, in_chans=in_chans, size=size)
    if not isinstance(out, Tensor):
        raise BackboneError(
            f"A head needs one map or one row of tokens, but {name} gives a {type(out).__name__}. "
            f"Build it without features_only, or call the head on features of your own."
        )
    return tuple(out.shape)


def run_once(model: nn.Module, features: Features, *, name: str, in_chans: int, size: tuple[int, int]) -> Tensor:
    """Run one empty picture through the model, and leave every module in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    try:
        model.eval()
        with torch.no_grad():
            return features(model, torch.zeros(1, in_chans, *size, dtype=dtype_of(model), device=device))
    except Exception as error:
        what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        raise BackboneError(
            f"{name} does not take pictures of {size[0]} x {size[1]} px ({what}). "
            f"Leave img_size out for its own size, or take a multiple of its patch size."
        ) from error
    finally:
        for module, mode in modes.items():
            module.training = mode


def weightless_copy(model: nn.Module) -> nn.Module:
    """Copy a model with every parameter and buffer on the meta device; what it caches stays in the copy."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(torch.empty_like(parameter, device="meta"), parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(model, memo)


def dtype_of(model: nn.Module) -> torch.dtype:
    """The floating type of the model's weights."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
