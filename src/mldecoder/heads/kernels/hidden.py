"""Dropout in place, and ReLU and dropout backwards.

Shapes: r rows, f width.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mldecoder.heads.kernels.launch import Drop, Kernel, column_sums, keep, processors

__all__ = ["drop_", "relu_drop_backward"]

BACKWARD = (4, 512, 4, 8)  # rows and columns at a time, warps, programs a multiprocessor: measured on an H200


@triton.jit
def _drop(x, seeds, count, threshold, scale, WHICH: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    place = tl.arange(0, BLOCK)
    ok = place < count - first
    value = tl.load(x + first + place, ok, 0.0).to(tl.float32)
    stays = keep(tl.load(seeds + WHICH), first.to(tl.uint32) + place.to(tl.uint32), threshold)
    tl.store(x + first + place, tl.where(stays, value * tl.cast(scale, tl.float32), 0.0), ok)


@triton.jit
def _relu_drop_backward(
    grad, hidden, out, partial, rows, scale, per_program,
    F: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.cast(scale, tl.float32)  # a compiled graph hands over float64
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    first = tl.program_id(0).to(tl.int64) * per_program
    for start in range(0, per_program, ROWS):
        row = first + start + tl.arange(0, ROWS)
        ok = (row < rows)[:, None] & (col < F)[None, :]
        place = (row * F)[:, None] + col[None, :]
        alive = tl.load(hidden + place, ok, 0.0) > 0
        value = tl.where(alive, tl.load(grad + place, ok, 0.0).to(tl.float32) * scale, 0.0)
        tl.store(out + place, value, ok)
        total += value
    tl.store(partial + tl.program_id(0) * F + col, tl.sum(total, 0), col < F)


_drop_kernel, _backward_kernel = Kernel(_drop), Kernel(_relu_drop_backward)


def drop_(x: Tensor, drop: Drop, *, which: int) -> Tensor:
    """Dropout in place."""
    count = x.numel()
    _drop_kernel((triton.cdiv(count, 4096),), (x, drop.seeds), (count, *drop.chance), (which, 4096), warps=8)
    return x


def relu_drop_backward(grad: Tensor, hidden: Tensor, out: Tensor, *, dropout: float, dtype: torch.dtype) -> Tensor:
    """Write the gradient of the input of ``dropout(relu(·))`` to ``out``; return its sum over the rows ``(f,)``.

    ``hidden`` is the result of the forward pass: it is above zero exactly where both let something through.
    """
    rows, f = grad.shape
    at_once, block, warps, crowd = BACKWARD
    wide = triton.cdiv(f, block)
    per_program = triton.cdiv(triton.cdiv(rows, max(crowd * processors(grad) // wide, 1)), at_once) * at_once
    parts = triton.cdiv(rows, per_program)
    partial = grad.new_empty(1, parts, f, dtype=torch.float32)
    _backward_kernel(
        (parts, wide),
        (grad, hidden, out, partial),
        (rows, 1 / (1 - dropout), per_program),
        (f, at_once, block),
        warps=warps,
    )
    return column_sums(partial, dtype)[0]
