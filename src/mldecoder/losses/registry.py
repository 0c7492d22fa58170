"""Losses by name, as recipes write them."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from mldecoder.errors import ConfigError, unknown_name
from mldecoder.losses.angular import angular_loss
from mldecoder.losses.sigmoid import asymmetric_loss, binary_cross_entropy, focal_loss
from mldecoder.losses.softmax import softmax_cross_entropy

__all__ = ["LOSSES", "Loss", "Option", "all_options", "build"]

Option = float | bool | str | None


class Loss(Protocol):
    """What ``build`` returns: a loss with its options filled in."""

    def __call__(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        sample_weights: Tensor | None = None,
        class_weights: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of one batch."""


LOSSES: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {
        "angular": angular_loss,
        "asymmetric": asymmetric_loss,
        "bce": binary_cross_entropy,
        "focal": focal_loss,
        "softmax": softmax_cross_entropy,
    }
)


def build(kind: str, options: Mapping[str, Option] | None = None) -> Loss:
    """Return the loss ``kind`` with its options filled in; a wrong name or value is an error here, not later.

    Args:
        kind: A key of ``LOSSES``.
        options: Keyword options of that function, as a recipe writes them. Numbers may be text ("2e-4", which
            is how YAML reads that).

    Example:
        >>> loss = build("asymmetric", {"gamma_neg": 4, "clip": 0.05})
        >>> loss(torch.zeros(1, 2), torch.tensor([[1, 0]])).ndim
        0
    """
    filled = all_options(kind, options)
    loss = functools.partial(LOSSES[kind], **filled)
    loss(torch.zeros(1, 2), torch.tensor([[1, 0]]))  # the function checks the values
    return loss


def all_options(kind: str, options: Mapping[str, Option] | None = None) -> dict[str, Option]:
    """Return every option of the loss ``kind``: those given, in their right types, and the defaults of the others."""
    if kind not in LOSSES:
        raise unknown_name("loss kind must be one of", kind, LOSSES)
    known: dict[str, Option] = {
        name: p.default
        for name, p in inspect.signature(LOSSES[kind]).parameters.items()
        if p.kind is p.KEYWORD_ONLY and not name.endswith("_weights")  # tensors come with the call
    }
    filled = dict(known)
    for name, value in (options or {}).items():
        if name not in known:
            raise unknown_name(f"loss {kind!r} has the options", name, known)
        filled[name] = _as_option(name, value, known[name])
    return filled


def _as_option(name: str, value: Option, default: Option) -> Option:
    """Return the value in the type of the default, or say what it should have been."""
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{name} must be true or false, got {value!r}.")
    if isinstance(default, str):
        return str(value)
    if value is None and default is None:
        return None
    if value is not None and not isinstance(value, bool):
        with contextlib.suppress(ValueError, TypeError):
            return float(value)
    raise ConfigError(f"{name} must be a number, got {value!r}.")
