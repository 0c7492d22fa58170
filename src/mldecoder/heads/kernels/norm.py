"""Residual, dropout and layer norm in one pass.

Shapes: r rows, d width.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mldecoder.heads.kernels.launch import Drop, Kernel, column_sums, keep, processors

__all__ = ["add_norm", "add_norm_backward"]

# Rows a program holds at a time, warps, and programs a multiprocessor; chosen by measurement on an H200 (width 768).
FORWARD = (1, 2)
BACKWARD = (2, 4, 4)


@triton.jit
def _summed(
    residual, x, row, col, ok, seed, threshold, scale, residual_rows, x_rows, D: tl.constexpr, DROP: tl.constexpr
):
    """Return residual + dropout(x) of some rows, in float32; either may repeat its rows. And the mask."""
    a = tl.load(residual + ((row % residual_rows) * D)[:, None] + col[None, :], ok, 0.0).to(tl.float32)
    b = tl.load(x + ((row % x_rows) * D)[:, None] + col[None, :], ok, 0.0).to(tl.float32)
    stays = ok
    if DROP:
        stays = keep(seed, (row * D).to(tl.uint32)[:, None] + col[None, :].to(tl.uint32), threshold) & ok
        b = tl.where(stays, b * scale, 0.0)
    return a + b, stays


@triton.jit
def _norm_forward(
    residual, x, gamma, beta, out, mean, rstd, seeds, rows, residual_rows, x_rows, threshold, scale, eps,
    WHICH: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    ok = (row < rows)[:, None] & (col < D)[None, :]
    seed = tl.load(seeds + WHICH) if DROP else 0
    scale = tl.cast(scale, tl.float32)  # a compiled graph hands over float64
    z, _ = _summed(residual, x, row, col, ok, seed, threshold, scale, residual_rows, x_rows, D, DROP)
    m = tl.sum(z, 1) / D
    centred = tl.where(ok, z - m[:, None], 0.0)
    r = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / D + tl.cast(eps, tl.float32))
    g = tl.load(gamma + col, col < D, 0.0).to(tl.float32)
    b = tl.load(beta + col, col < D, 0.0).to(tl.float32)
    tl.store(out + (row * D)[:, None] + col[None, :], centred * r[:, None] * g[None, :] + b[None, :], ok)
    tl.store(mean + row, m, row < rows)
    tl.store(rstd + row, r, row < rows)


@triton.jit
def _norm_backward(
    dy, dy2, counted, residual, x, gamma, mean, rstd, seeds, d_residual, dx, partial,
    rows, residual_rows, x_rows, threshold, scale, programs,
    WHICH: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr,
    TWO: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    inside = col < D
    g = tl.load(gamma + col, inside, 0.0).to(tl.float32)
    seed = tl.load(seeds + WHICH) if DROP else 0
    scale = tl.cast(scale, tl.float32)  # a compiled graph hands over float64
    d_gamma = tl.zeros([BLOCK], tl.float32)
    d_beta = tl.zeros([BLOCK], tl.float32)
    d_bias = tl.zeros([BLOCK], tl.float32)
    for start in range(pid * ROWS, rows, programs * ROWS):
        row = start + tl.arange(0, ROWS)
        ok = (row < rows)[:, None] & inside[None, :]
        place = (row * D)[:, None] + col[None, :]
        z, stays = _summed(residual, x, row, col, ok, seed, threshold, scale, residual_rows, x_rows, D, DROP)
        m = tl.load(mean + row, row < rows, 0.0)
        r = tl.load(rstd + row, row < rows, 0.0)
        normed = tl.where(ok, (z - m[:, None]) * r[:, None], 0.0)
        up = tl.load(dy + place, ok, 0.0).to(tl.float32)
        if TWO:
            up += tl.load(dy2 + place, ok, 0.0).to(tl.float32)
            d_bias += tl.sum(tl.load(counted + place, ok, 0.0).to(tl.float32), 0)
        d_gamma += tl.sum(up * normed, 0)
        d_beta += tl.sum(up, 0)
        if INPUTS:
            w = up * g[None, :]
            along = tl.sum(w * normed, 1) / D
            level = tl.sum(w, 1) / D
            dz = tl.where(ok, (w - normed * along[:, None] - level[:, None]) * r[:, None], 0.0)
            tl.store(d_residual + place, dz, ok)
            if DROP:
                dz = tl.where(stays, dz * scale, 0.0)
                tl.store(dx + place, dz, ok)
            if not TWO:
                d_bias += tl.sum(dz, 0)
    tl.store(partial + pid * D + col, d_gamma, inside)
    tl.store(partial + (programs + pid) * D + col, d_beta, inside)
    tl.store(partial + (2 * programs + pid) * D + col, d_bias, inside)


_forward_kernel, _backward_kernel = Kernel(_norm_forward), Kernel(_norm_backward)


def add_norm(
    residual: Tensor,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    rows: int,
    *,
    drop: Drop,
    which: int,
    eps: float,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``norm(residual + dropout(x))`` over ``rows`` rows, with means and inverse deviations ``(r,)``.

    ``residual`` and ``x`` are ``(·, d)`` and are repeated to ``rows`` rows. The mask is that of ``drop.seeds[which]``.
    The result is written to ``out`` where that is given.
    """
    d = x.shape[1]
    out = x.new_empty(rows, d) if out is None else out
    mean, rstd = x.new_empty(rows, dtype=torch.float32), x.new_empty(rows, dtype=torch.float32)
    at_once, warps = FORWARD
    _forward_kernel(
        (triton.cdiv(rows, at_once),),
        (residual, x, gamma, beta, out, mean, rstd, drop.seeds),
        (rows, residual.shape[0], x.shape[0], *drop.chance, eps),
        (which, d, triton.next_power_of_2(d), at_once, drop.on),
        warps=warps,
    )
    return out, mean, rstd


def add_norm_backward(
    dy: Tensor,
    residual: Tensor,
    x: Tensor,
    gamma: Tensor,
    mean: Tensor,
    rstd: Tensor,
    *,
    drop: Drop,
    which: int,
    more: tuple[Tensor, Tensor] | None = None,
    inputs: bool = True,
    into: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients ``(r, d)`` of residual and x, and the sums ``(3, d)`` for gamma, beta and a bias added to x.

    Args:
        dy: Gradient of the result ``(r, d)``.
        residual: As given to :func:`add_norm`.
        x: The same.
        gamma: The same.
        mean: From there.
        rstd: From there.
        drop: As given there.
        which: The same.
        more: Two tensors ``(r, d)``: the first is added to ``dy`` on the way; the second is what the third sum counts.
        inputs: Whether the gradients of residual and x are wanted.
        into: Where to write them, if not to new tensors: each row is read before it is written, so ``residual`` and
            ``x`` will do, where they have as many rows as ``dy``.
    """
    rows, d = dy.shape
    at_once, warps, crowd = BACKWARD
    programs = min(triton.cdiv(rows, at_once), crowd * processors(dy))
    partial = dy.new_empty(3, programs, d, dtype=torch.float32)
    first, second = into
    d_residual = dy if not inputs else torch.empty_like(dy) if first is None else first
    dx = d_residual if not inputs or not drop.on else torch.empty_like(dy) if second is None else second
    dy2, counted = (dy, dy) if more is None else more
    _backward_kernel(
        (programs,),
        (dy, dy2, counted, residual, x, gamma, mean, rstd, drop.seeds, d_residual, dx, partial),
        (rows, residual.shape[0], x.shape[0], *drop.chance, programs),
        (which, d, triton.next_power_of_2(d), at_once, drop.on, more is not None, inputs),
        warps=warps,
    )
    return d_residual, dx, column_sums(partial, gamma.dtype)
