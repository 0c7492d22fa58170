"""ML-Decoder with options as a loop: one image and one query at a time.

It reads the weights of our head and shares none of its code. Shapes: t tokens, c channels, d width, n classes.
"""

import math
from typing import Any

import torch
from torch import Tensor

from mldecoder.heads.plus import MLDecoderPlus
from tests.heads.naive import linear, norm


def unit(x: Tensor) -> Tensor:
    return x / x.square().sum().sqrt().clamp(min=1e-6)  # ReLU may leave nothing of a token


def attend(layer: Any, query: Tensor, tokens: Tensor) -> Tensor:  # noqa: ANN401 - a layer of any kind
    """One query (d,) looks at one picture's embedded tokens (t, d): (d,)."""
    attention, width = layer.attention, len(query)
    projected = getattr(attention, "projections", True)
    temperature = getattr(attention, "temperature", None)
    q = linear(query, attention.query) if projected else query
    keys_values = linear(tokens, attention.key_value)
    keys, values = (keys_values[:, :width], keys_values[:, width:]) if projected else (tokens, keys_values)
    parts, size = [], width // attention.heads
    for h in range(attention.heads):
        part = slice(h * size, (h + 1) * size)
        if temperature is None:
            scores = torch.stack([key[part] @ q[part] / math.sqrt(size) for key in keys])
        else:
            scores = torch.stack([unit(key[part]) @ unit(q[part]) * temperature[h, 0, 0] for key in keys])
        parts.append(scores.softmax(dim=0) @ values[:, part])
    return linear(torch.cat(parts), attention.out)


def decode_one(head: MLDecoderPlus, tokens: Tensor, query: Tensor) -> Tensor:
    tokens = linear(tokens, head.decoder.embed).clamp(min=0)
    pre, layers = head.options.norm == "pre", list(head.decoder.layers)
    for i, layer in enumerate(layers):
        own: Any = layer
        factor1, factor2 = (own.scale1, own.scale2) if head.options.layer_scale is not None else (1.0, 1.0)
        stream = query if pre else norm(query + query, own.norm1)
        seen = attend(own, norm(query, own.norm1) if pre else stream, tokens)
        query = stream + seen * factor1
        if not pre:
            query = norm(query, own.norm2)
        if head.ff_width:
            hidden = linear(norm(query, own.norm2) if pre else query, own.linear1).clamp(min=0)
            query = query + linear(hidden, own.linear2) * factor2
        last = i + 1 == len(layers)
        if (pre and last) or (not pre and head.ff_width):
            query = norm(query, own.norm3)
    return query


def branch_logit(head: MLDecoderPlus, tokens: Tensor, label: int) -> Tensor:
    branch = head.branch
    assert branch is not None
    each = torch.stack([token @ branch.classify.weight[label] + branch.classify.bias[label] for token in tokens])
    return {"mean": each.mean(), "max": each.max(), "mean+max": (each.mean() + each.max()) / 2}[head.options.branch]


def naive_plus(head: MLDecoderPlus, tokens: Tensor) -> Tensor:
    """Tokens (b, t, c) to logits (b, n), class by class."""
    group_size = head.classify.weight.shape[2]
    logits = torch.empty(len(tokens), head.num_classes, dtype=tokens.dtype)
    for b, picture in enumerate(tokens):
        if head.token_norm is not None:
            picture = torch.stack([norm(token, head.token_norm) for token in picture])  # noqa: PLW2901
        decoded = [decode_one(head, picture, query) for query in head.queries]
        for c in range(head.num_classes):
            k, j = divmod(int(head.classify.slots[c]), group_size)
            weight = head.classify.weight[k, :, j]
            if head.scale is None:
                logits[b, c] = decoded[k] @ weight + head.classify.bias[c]
            else:
                logits[b, c] = unit(decoded[k]) @ unit(weight) * head.scale + head.classify.bias[c]
            if head.branch is not None:
                logits[b, c] += branch_logit(head, picture, c)
    return logits
