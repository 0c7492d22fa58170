"""ML-Decoder as the paper's pseudo-code writes it: loops, no fused kernel, one image and one query at a time.

It reads the weights of our head and shares none of its code. Shapes: t tokens, k queries, d width, n classes.
"""

import math

import torch
from torch import Tensor, nn

from mldecoder.heads import MLDecoder, ZeroShotMLDecoder


def linear(x: Tensor, layer: nn.Linear) -> Tensor:
    return x @ layer.weight.T + layer.bias


def norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + layer.eps).sqrt() * layer.weight + layer.bias


def decode_one(head: MLDecoder | ZeroShotMLDecoder, tokens: Tensor, query: Tensor) -> Tensor:
    """One query looks at one picture's tokens (t, c): (d,)."""
    tokens = linear(tokens, head.decoder.embed).clamp(min=0)
    for layer in head.decoder.layers:
        width, heads = len(query), layer.attention.heads  # type: ignore[union-attr]
        query = norm(query + query, layer.norm1)  # type: ignore[arg-type]
        q = linear(query, layer.attention.query)  # type: ignore[union-attr,arg-type]
        key_value = linear(tokens, layer.attention.key_value)  # type: ignore[union-attr,arg-type]
        parts = []
        for h in range(heads):  # type: ignore[arg-type]
            part = slice(h * width // heads, (h + 1) * width // heads)  # type: ignore[operator]
            key, value = key_value[:, :width][:, part], key_value[:, width:][:, part]
            weights = (key @ q[part] / math.sqrt(width // heads)).softmax(dim=0)  # type: ignore[operator]
            parts.append(weights @ value)
        query = norm(query + linear(torch.cat(parts), layer.attention.out), layer.norm2)  # type: ignore[union-attr,arg-type]
        hidden = linear(query, layer.linear1).clamp(min=0)  # type: ignore[arg-type]
        query = norm(query + linear(hidden, layer.linear2), layer.norm3)  # type: ignore[arg-type]
    return query


def naive_ml_decoder(head: MLDecoder, tokens: Tensor) -> Tensor:
    """Tokens (b, t, c) to logits (b, n), class by class."""
    group_size = head.classify.weight.shape[2]
    logits = torch.empty(len(tokens), head.num_classes, dtype=tokens.dtype)
    for b, picture in enumerate(tokens):
        decoded = [decode_one(head, picture, query) for query in head.queries]
        for c in range(head.num_classes):
            k, j = divmod(int(head.classify.slots[c]), group_size)
            logits[b, c] = decoded[k] @ head.classify.weight[k, :, j] + head.classify.bias[c]
    return logits
