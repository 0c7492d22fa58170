"""Attention from a few queries to a few tokens: one program an image and head holds all tokens at once.

Shapes: b batch, k queries, t tokens, d width, h heads, e = d / h.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mldecoder.heads.kernels.launch import Drop, Kernel, column_sums, keep

__all__ = ["attention", "attention_backward"]


@triton.jit
def _probabilities(q, k, allowed, sharpness):
    """Softmax over the tokens of one head: (queries, tokens), in float32."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * sharpness
    s = tl.where(allowed[None, :], s, float("-inf"))
    e = tl.exp2(s - tl.max(s, 1)[:, None])
    return e / tl.sum(e, 1)[:, None]


@triton.jit
def _keys_and_values(  # what a program holds from beginning to end: one head's keys and values of one image
    kv, mask, tokens,
    H: tl.constexpr, E: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0) % H
    image = (tl.program_id(0) // H).to(tl.int64)
    token = tl.arange(0, BLOCK_T)
    col = tl.arange(0, BLOCK_E)
    allowed = token < tokens
    in_kv = allowed[:, None] & (col < E)[None, :]
    at = (image * tokens + token)[:, None] * (2 * H * E) + head * E + col[None, :]
    k = tl.load(kv + at, in_kv, 0.0)
    v = tl.load(kv + at + H * E, in_kv, 0.0)
    if MASKED:
        allowed = allowed & (tl.load(mask + image * tokens + token, allowed, 0) != 0)
    return image, head, token, col, k, v, allowed, at, in_kv


@triton.jit
def _attend_forward(
    query, kv, mask, out, seeds, q_stride, queries, tokens, sharpness, threshold, scale,
    WHICH: tl.constexpr, H: tl.constexpr, E: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr, DROP: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = H * E
    sharpness, scale = tl.cast(sharpness, tl.float32), tl.cast(scale, tl.float32)  # a compiled graph hands over float64
    image, head, token, col, k, v, allowed, _, _ = _keys_and_values(kv, mask, tokens, H, E, BLOCK_T, BLOCK_E, MASKED)
    row = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    in_q = (row < queries)[:, None] & (col < E)[None, :]
    q = tl.load(query + image * q_stride + row[:, None] * D + head * E + col[None, :], in_q, 0.0)
    p = _probabilities(q, k, allowed, sharpness)
    if DROP:
        place = ((image * H + head) * queries + row)[:, None] * tokens + token[None, :]
        p = tl.where(keep(tl.load(seeds + WHICH), place, threshold), p * scale, 0.0)
    o = tl.dot(p.to(v.dtype), v, input_precision="ieee")
    tl.store(out + (image * queries + row)[:, None] * D + head * E + col[None, :], o, in_q)


@triton.jit
def _attend_backward(
    query, kv, mask, grad, seeds, d_query, d_kv, sums, q_stride, queries, tokens, sharpness, factor, threshold, scale,
    WHICH: tl.constexpr, H: tl.constexpr, E: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr, DROP: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = H * E
    sharpness, scale = tl.cast(sharpness, tl.float32), tl.cast(scale, tl.float32)  # a compiled graph hands over float64
    image, head, token, col, k, v, allowed, at, in_kv = _keys_and_values(
        kv, mask, tokens, H, E, BLOCK_T, BLOCK_E, MASKED
    )
    dk = tl.zeros([BLOCK_T, BLOCK_E], tl.float32)
    dv = tl.zeros([BLOCK_T, BLOCK_E], tl.float32)
    for start in range(0, queries, BLOCK_K):
        row = start + tl.arange(0, BLOCK_K)
        in_q = (row < queries)[:, None] & (col < E)[None, :]
        q = tl.load(query + image * q_stride + row[:, None] * D + head * E + col[None, :], in_q, 0.0)
        here = (image * queries + row)[:, None] * D + head * E + col[None, :]
        do = tl.load(grad + here, in_q, 0.0)
        p = _probabilities(q, k, allowed, sharpness)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        dropped = p
        if DROP:
            place = ((image * H + head) * queries + row)[:, None] * tokens + token[None, :]
            stays = keep(tl.load(seeds + WHICH), place, threshold)
            dropped = tl.where(stays, p * scale, 0.0)
            dp = tl.where(stays, dp * scale, 0.0)
        dv += tl.dot(tl.trans(dropped.to(do.dtype)), do, input_precision="ieee")
        ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * tl.cast(factor, tl.float32)).to(k.dtype)
        tl.store(d_query + here, tl.dot(ds, k, input_precision="ieee"), in_q)
        dk += tl.dot(tl.trans(ds), q, input_precision="ieee")
    tl.store(d_kv + at, dk, in_kv)
    tl.store(d_kv + at + D, dv, in_kv)
    into = sums + image * (2 * D) + head * E + col
    tl.store(into, tl.sum(dk, 0), col < E)
    tl.store(into + D, tl.sum(dv, 0), col < E)


_forward_kernel, _backward_kernel = Kernel(_attend_forward), Kernel(_attend_backward)


def attention(query: Tensor, kv: Tensor, mask: Tensor | None, *, heads: int, drop: Drop, which: int) -> Tensor:
    """Attend from ``(b or 1, k, d)`` to keys and values ``(b, t, 2d)`` side by side: ``(b, k, d)``.

    ``mask`` is ``(b, t)``, true where a token may be looked at.
    """
    (b, t, _), (_, k, d) = kv.shape, query.shape
    out = kv.new_empty(b, k, d)
    block_k, block_t, block_e, warps, stages = sizes(k, t, d // heads)
    _forward_kernel(
        (b * heads, triton.cdiv(k, block_k)),
        (query, kv, kv if mask is None else mask, out, drop.seeds),
        (_q_stride(query), k, t, _sharpness(d // heads), *drop.chance),
        (which, heads, d // heads, block_k, block_t, block_e, drop.on, mask is not None),
        warps=warps,
        stages=stages,
    )
    return out


def attention_backward(
    grad: Tensor,
    query: Tensor,
    kv: Tensor,
    mask: Tensor | None,
    *,
    heads: int,
    drop: Drop,
    which: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the query ``(b, k, d)`` (each image's) and of keys and values ``(b, t, 2d)``.

    The third result ``(2d,)``, in ``dtype``, is the latter's sum over images and tokens: the gradient of a bias.
    """
    (b, t, _), (_, k, d) = kv.shape, query.shape
    d_query, d_kv = torch.empty_like(grad), torch.empty_like(kv)
    sums = kv.new_empty(1, b, 2 * d, dtype=torch.float32)
    block_k, block_t, block_e, warps, stages = sizes(k, t, d // heads)
    _backward_kernel(
        (b * heads,),
        (query, kv, kv if mask is None else mask, grad, drop.seeds, d_query, d_kv, sums),
        (_q_stride(query), k, t, _sharpness(d // heads), (d // heads) ** -0.5, *drop.chance),
        (which, heads, d // heads, block_k, block_t, block_e, drop.on, mask is not None),
        warps=warps,
        stages=stages,
    )
    return d_query, d_kv, column_sums(sums, dtype)[0]


def sizes(queries: int, tokens: int, width: int) -> tuple[int, int, int, int, int]:
    """Block sizes, warps and stages: all tokens at once; the rest was chosen by measurement on an H200."""
    block_t = max(triton.next_power_of_2(tokens), 16)
    block_k = min(max(triton.next_power_of_2(queries), 16), 64)
    return block_k, block_t, max(triton.next_power_of_2(width), 16), 4, 1


def _sharpness(width: int) -> float:
    return float(width**-0.5 * 1.4426950408889634)  # softmax to the base 2


def _q_stride(query: Tensor) -> int:
    return 0 if query.shape[0] == 1 else query.shape[1] * query.shape[2]
