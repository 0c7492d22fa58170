"""The group layer: small groups in kernels of their own, columns to class order and back for large ones.

Shapes: b batch, k queries, d width, g classes a query, n classes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mldecoder.heads.kernels.launch import Kernel

__all__ = ["SMALL", "put_columns", "small_groups", "small_groups_backward", "take_columns"]

SMALL = 32  # groups up to this size; larger ones are better off with the library's batched product


@triton.jit
def _small_forward(
    x, weight, bias, class_of_slot, out, batch, queries, classes,
    D: tl.constexpr, G: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    query = tl.program_id(0).to(tl.int64)
    image = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    column = tl.arange(0, BLOCK_G)
    total = tl.zeros([BLOCK_B, BLOCK_G], tl.float32)
    for start in range(0, D, BLOCK_D):
        d = start + tl.arange(0, BLOCK_D)
        at = (image.to(tl.int64) * queries + query)[:, None] * D + d[None, :]
        a = tl.load(x + at, (image < batch)[:, None] & (d < D)[None, :], 0.0)
        at = (query * D + d)[:, None] * G + column[None, :]
        w = tl.load(weight + at, (d < D)[:, None] & (column < G)[None, :], 0.0)
        total = tl.dot(a, w, total, input_precision="ieee")
    owner = tl.load(class_of_slot + query * G + column, column < G, -1)
    total += tl.load(bias + owner, owner >= 0, 0.0).to(tl.float32)[None, :]
    at = image.to(tl.int64)[:, None] * classes + owner[None, :]
    tl.store(out + at, total, (image < batch)[:, None] & (owner >= 0)[None, :])


@triton.jit
def _small_backward(
    grad, x, weight, class_of_slot, dx, d_weight, d_bias, batch, queries, classes,
    D: tl.constexpr, G: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    query = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    column = tl.arange(0, BLOCK_G)
    owner = tl.load(class_of_slot + query * G + column, column < G, -1)
    in_w = (d < D)[:, None] & (column < G)[None, :]
    at_w = (query * D + d)[:, None] * G + column[None, :]
    w = tl.load(weight + at_w, in_w, 0.0)
    dw = tl.zeros([BLOCK_D, BLOCK_G], tl.float32)
    sums = tl.zeros([BLOCK_G], tl.float32)
    for start in range(0, batch, BLOCK_B):
        image = (start + tl.arange(0, BLOCK_B)).to(tl.int64)
        here = (image < batch)[:, None]
        up = tl.load(grad + image[:, None] * classes + owner[None, :], here & (owner >= 0)[None, :], 0.0)
        at = (image * queries + query)[:, None] * D + d[None, :]
        in_x = here & (d < D)[None, :]
        a = tl.load(x + at, in_x, 0.0)
        tl.store(dx + at, tl.dot(up, tl.trans(w), input_precision="ieee"), in_x)
        dw = tl.dot(tl.trans(a), up, dw, input_precision="ieee")
        sums += tl.sum(up.to(tl.float32), 0)
    tl.store(d_weight + at_w, dw, in_w)
    if tl.program_id(1) == 0:
        tl.store(d_bias + owner, sums, owner >= 0)


@triton.jit
def _take(x, index, bias, out, rows, wide, count, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = col < count
    source = tl.load(index + col, ok, 0)
    shift = tl.load(bias + col, ok, 0.0).to(tl.float32)
    for i in range(ROWS):
        row = tl.program_id(1).to(tl.int64) * ROWS + i
        value = tl.load(x + row * wide + source, ok & (row < rows), 0.0).to(tl.float32)
        tl.store(out + row * count + col, value + shift, ok & (row < rows))


@triton.jit
def _put(
    x, class_of_slot, out, rows, queries, columns, count,
    ROWS: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    # Neighbouring columns of many queries hold neighbouring classes: what is read together lies together.
    query = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    column = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    ok = (query < queries)[:, None] & (column < columns)[None, :]
    slot = query[:, None] * columns + column[None, :]
    source = tl.load(class_of_slot + slot, ok, -1)
    for i in range(ROWS):
        row = tl.program_id(2).to(tl.int64) * ROWS + i
        value = tl.load(x + row * count + source, (source >= 0) & (row < rows), 0.0)
        tl.store(out + row * queries * columns + slot, value, ok & (row < rows))


_small_forward_kernel, _small_backward_kernel = Kernel(_small_forward), Kernel(_small_backward)
_take_kernel, _put_kernel = Kernel(_take), Kernel(_put)


def small_groups(x: Tensor, weight: Tensor, bias: Tensor, class_of_slot: Tensor) -> Tensor:
    """Queries ``(b, k, d)`` through ``(k, d, g)`` to logits ``(b, n)`` in class order, bias added."""
    (b, k, d), g, n = x.shape, weight.shape[2], bias.shape[0]
    out = x.new_empty(b, n)
    _small_forward_kernel(
        (k, triton.cdiv(b, 64)),
        (x, weight, bias, class_of_slot, out),
        (b, k, n),
        (d, g, 64, 128, max(triton.next_power_of_2(g), 16)),
    )
    return out


def small_groups_backward(
    grad: Tensor, x: Tensor, weight: Tensor, class_of_slot: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x ``(b, k, d)``, weight ``(k, d, g)`` and bias ``(n,)``."""
    (b, k, d), g, n = x.shape, weight.shape[2], grad.shape[1]
    dx, d_weight = torch.empty_like(x), torch.empty_like(weight)
    d_bias = weight.new_empty(n)
    _small_backward_kernel(
        (k, triton.cdiv(d, 128)),
        (grad, x, weight, class_of_slot, dx, d_weight, d_bias),
        (b, k, n),
        (d, g, 32, 128, max(triton.next_power_of_2(g), 16)),
    )
    return dx, d_weight, d_bias


def take_columns(x: Tensor, index: Tensor, bias: Tensor) -> Tensor:
    """``x[:, index] + bias``: from slots to classes."""
    (rows, wide), count = x.shape, index.shape[0]
    out = x.new_empty(rows, count)
    grid = (triton.cdiv(count, 1024), triton.cdiv(rows, 4))
    _take_kernel(grid, (x, index, bias, out), (rows, wide, count), (4, 1024))
    return out


def put_columns(x: Tensor, class_of_slot: Tensor, queries: int) -> Tensor:
    """From classes ``(b, n)`` to slots ``(b, k, g)``; zero where a slot is padding."""
    (rows, count), columns = x.shape, class_of_slot.shape[0] // queries
    out = x.new_empty(rows, queries, columns)
    grid = (triton.cdiv(queries, 32), triton.cdiv(columns, 32), triton.cdiv(rows, 8))
    _put_kernel(grid, (x, class_of_slot, out), (rows, queries, columns, count), (8, 32, 32))
    return out
