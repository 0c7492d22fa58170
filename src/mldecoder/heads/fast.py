"""The head for GPUs in half precision: the results of :mod:`mldecoder.heads.layers`, in fewer passes over memory.

Here it is decided who may take that way, and the modules' weights are handed to the steps of ``fast_steps``. These and
their kernels, which are Triton, are imported when they are first used. What they cannot take (other devices, float32
and float64, export) goes the plain way. Masks of dropout are a hash of a random seed and a place, drawn again in the
backward pass.

Shapes: b batch, k queries, t tokens, c channels, d width, f feed-forward width, n classes, g classes a query.
"""

import os
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Source", "attend", "embed", "finish", "group_linear", "query_side", "untouched", "usable"]

ENABLED = find_spec("triton") is not None and os.environ.get("MLDECODER_FAST", "1") != "0"

MOST_WIDTH = 4096  # a program holds all numbers of a query at once
HALF = (torch.bfloat16, torch.float16)

FEW_TOKENS = 64  # up to here our attention is faster than the library's (measured on an H200: 49 yes, 196 no)
_NEW_ENOUGH: dict[int | None, bool] = {}


class Source(NamedTuple):
    """What normed queries were made of, to make them again: queries, the norm's weight and bias, random seeds."""

    queries: Tensor
    gamma: Tensor
    beta: Tensor
    seeds: Tensor


def usable(x: Tensor, width: int) -> bool:
    """Whether features ``x`` can take the fast way; ``MLDECODER_FAST=0`` in the environment says no."""
    if not x.is_cuda or not ENABLED or width > MOST_WIDTH or x.numel() == 0:
        return False
    if _precision(x) not in HALF or not _new_enough(x.device):
        return False
    if torch.compiler.is_dynamo_compiling():
        return True
    return not torch.compiler.is_exporting() and x.device.index == torch.cuda.current_device()


def untouched(*layers: nn.Module) -> bool:
    """Whether layers are plain torch: not replaced, parametrised or hooked, so that their weights say it all."""
    return all(
        type(layer) in (nn.Linear, nn.LayerNorm) and not layer._forward_hooks and not layer._forward_pre_hooks
        for layer in layers
    )


def embed(linear: nn.Linear, tokens: Tensor) -> Tensor:
    """``relu(linear(tokens))``: ``(b, t, c) -> (b, t, d)``."""
    from mldecoder.heads.fast_steps import Embed

    y: Tensor = _run(Embed, tokens, *_pair(linear), _precision(tokens))
    return y


def query_side(
    norm: nn.LayerNorm, linear: nn.Linear, queries: Tensor, batch: int, dropout: float
) -> tuple[Tensor, Tensor, Source]:
    """``norm(queries + dropout(queries))`` with each image's own mask, and its projection: ``(b, k, d)`` each.

    ``queries`` are ``(1 or b, k, d)``. What they were made of comes too, for :func:`finish`.
    """
    from mldecoder.heads.fast_steps import QuerySide

    dtype, source = _precision(queries), Source(queries, *_pair(norm), _seeds(queries, dropout))
    side: tuple[Tensor, Tensor] = _run(
        QuerySide, queries, *_pair(norm), *_pair(linear), source.seeds, batch, dropout, norm.eps, dtype
    )
    return *side, source


def attend(
    projected: Tensor, tokens: Tensor, key_value: nn.Linear, *, heads: int, mask: Tensor | None, dropout: float
) -> Tensor:
    """Softmax attention from ``(1 or b, k, d)`` to tokens ``(b, t, d)``: ``(b, k, d)``.

    ``mask`` is ``(b, 1, 1, t)``, true where a token may be looked at.
    """
    from mldecoder.heads.fast_steps import Attend

    b, t, _ = tokens.shape
    if t <= FEW_TOKENS:
        flat_mask = None if mask is None else mask.flatten(1).contiguous()
        seeds, dtype = _seeds(tokens, dropout), _precision(tokens)
        seen: Tensor = _run(Attend, projected, tokens, *_pair(key_value), flat_mask, seeds, heads, dropout, dtype)
        return seen
    key, value = key_value(tokens).chunk(2, dim=-1)
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (projected.expand(b, -1, -1), key, value))
    seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return seen.transpose(1, 2).flatten(2)


def finish(
    normed: Tensor,
    seen: Tensor,
    out: nn.Linear,
    norm2: nn.LayerNorm,
    linear1: nn.Linear,
    linear2: nn.Linear,
    norm3: nn.LayerNorm,
    dropout: float,
    source: Source | None = None,
) -> Tensor:
    """What follows attention: ``(b, k, d)``.

    ``y = norm2(normed + dropout(out(seen)))``, then ``norm3(y + dropout(linear2(dropout(relu(linear1(y))))))``.
    ``normed`` is ``(1 or b, k, d)``; with the ``source`` that :func:`query_side` gave, it need not be kept.
    """
    from mldecoder.heads.fast_steps import Finish

    weights = (*_pair(out), *_pair(norm2), *_pair(linear1), *_pair(linear2), *_pair(norm3))
    made_of = (None,) * 4 if source is None else source
    y: Tensor = _run(
        Finish, normed, *made_of, seen, *weights, _seeds(seen, dropout), dropout, norm2.eps, _precision(seen)
    )
    return y


def group_linear(x: Tensor, weight: Tensor, bias: Tensor, slots: Tensor, class_of_slot: Tensor) -> Tensor:
    """Queries ``(b, k, d)`` through ``(k, d, g)`` to logits ``(b, n)`` in class order."""
    from mldecoder.heads.fast_steps import GroupLinear

    y: Tensor = _run(GroupLinear, x, weight, bias, slots, class_of_slot, _precision(x))
    return y


def _run(step: type[torch.autograd.Function], *args: Any) -> Any:
    """Apply a step; where no gradient is wanted, without autograd's bookkeeping."""
    if torch.is_grad_enabled():
        return step.apply(*args)
    return step.forward(None, *args)


def _pair(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight and bias, past ``nn.Module``'s slow attribute lookup."""
    own: Any = layer._parameters
    return own["weight"], own["bias"]


def _seeds(x: Tensor, dropout: float) -> Tensor:
    """Fresh random numbers on the device, one for each mask; the generator decides, as for any dropout."""
    if dropout == 0:
        return torch.empty(0, dtype=torch.int64, device=x.device)
    return torch.randint(2**62, (5,), device=x.device)


def _precision(x: Tensor) -> torch.dtype:
    """What products are computed in: autocast's precision, or that of the input."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _new_enough(device: torch.device) -> bool:
    """Whether the card has bfloat16 in its matrix units (2020 or later)."""
    known = _NEW_ENOUGH.get(device.index)
    if known is None:
        known = torch.cuda.get_device_capability(device) >= (8, 0)
        if not torch.compiler.is_compiling():
            _NEW_ENOUGH[device.index] = known
    return known
