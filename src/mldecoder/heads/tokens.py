"""Backbone output to tokens.

Shapes: b batch, c channels, h and w map size, f frames, t tokens.
"""

from torch import Tensor

from mldecoder.errors import InputError

__all__ = ["padding_mask", "to_tokens"]


def to_tokens(x: Tensor, in_features: int) -> Tensor:
    """Bring features of any supported layout to ``(b, t, c)``, without a copy where strides allow it.

    Maps ``(b, c, h, w)`` and clips ``(b, c, f, h, w)`` may also have their channels last; where both ends are
    ``in_features`` long, channels first wins. Sequences are ``(b, t, c)``.
    """
    if x.ndim == 3 and x.shape[2] == in_features:
        tokens = x
    elif x.ndim in (4, 5) and x.shape[1] == in_features:
        tokens = x.flatten(2).transpose(1, 2)
    elif x.ndim in (4, 5) and x.shape[-1] == in_features:
        tokens = x.flatten(1, -2)
    else:
        raise InputError(_refusal(x, in_features))
    if tokens.shape[1] == 0:
        raise InputError(f"features must hold at least one token, got shape {tuple(x.shape)}.")
    return tokens


def padding_mask(mask: Tensor | None, tokens: Tensor) -> Tensor | None:
    """Turn ``key_padding_mask`` (true = padding) into the mask of attention (true = attend): ``(b, 1, 1, t)``."""
    if mask is None:
        return None
    mask = mask.flatten(1)
    if mask.shape != tokens.shape[:2]:
        raise InputError(
            f"key_padding_mask must have one entry per token, {tuple(tokens.shape[:2])}, got {tuple(mask.shape)}."
        )
    if mask.is_floating_point():
        raise InputError(f"key_padding_mask must be boolean, true where a token is padding, got {mask.dtype}.")
    return ~mask.bool()[:, None, None, :]


def _refusal(x: Tensor, in_features: int) -> str:
    shape = tuple(x.shape)
    if x.ndim == 2:
        return (
            f"The head attends over places, but features of shape {shape} are already pooled. "
            f"Pass the backbone's last feature map (b, {in_features}, h, w) or its tokens (b, t, {in_features}), "
            f"for a timm model `model.forward_features(x)`."
        )
    if x.ndim == 3 and x.shape[1] == in_features:
        return f"Token features must be (b, t, {in_features}), got {shape}. Transpose them: `x.transpose(1, 2)`."
    return (
        f"Features must be (b, {in_features}, h, w), (b, h, w, {in_features}), (b, {in_features}, f, h, w) "
        f"or (b, t, {in_features}), got {shape}. Set in_features to the backbone's number of channels."
    )
