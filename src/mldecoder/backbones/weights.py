"""Weights from a file into a backbone, whatever its author called the tensors."""

import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mldecoder.backbones.base import Backbone
from mldecoder.errors import CheckpointError

__all__ = ["load_weights"]


def load_weights(backbone: Backbone, state: Mapping[str, Tensor], source: str) -> None:
    """Fill a backbone from a state dict with its library's names; a classifier in it is passed over.

    Where timm can translate older names (the official TResNet's, say), it does.

    Args:
        backbone: The backbone to fill.
        state: Its tensors, with or without a classifier.
        source: Where they come from, for the error.
    """
    own = backbone.model.state_dict()
    translated = _translated(backbone, {key.removeprefix("backbone.model."): value for key, value in state.items()})
    found = {key: value for key, value in translated.items() if key in own}
    missing = [key for key in own if key not in found and not key.endswith("num_batches_tracked")]
    if missing:
        raise CheckpointError(
            f"{source} does not hold the weights of {backbone.name}: {len(missing)} of {len(own)} tensors are missing, "
            f"the first is {missing[0]!r}. Pass the backbone that the file was made for."
        )
    wrong = [key for key, value in found.items() if value.shape != own[key].shape]
    if wrong:
        raise CheckpointError(
            f"{source} does not fit {backbone.name}: {wrong[0]!r} has shape {tuple(found[wrong[0]].shape)}, "
            f"expected {tuple(own[wrong[0]].shape)}."
        )
    backbone.model.load_state_dict(found, strict=False)


def _translated(backbone: Backbone, state: dict[str, Tensor]) -> Mapping[str, Tensor]:
    """The state under today's names, by the function that timm itself applies to downloaded weights."""
    module: Any = sys.modules.get(type(backbone.model).__module__)
    translate = getattr(module, "checkpoint_filter_fn", None)  # a module has one or has none; timm's own look-up
    if translate is None:
        return state
    result: Mapping[str, Tensor] = translate(dict(state), backbone.model)
    return result
