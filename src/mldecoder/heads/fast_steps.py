"""The steps of the fast path, each with its backward pass written out, so that norms, dropout, residuals and bias sums
ride along with the products.

``ctx`` is autograd's, or ``None`` where no gradient is wanted and nothing has to be kept. The head's memory stands on
top of the whole backbone's, so normed queries are made again rather than kept, and gradients take the place of what was
kept for them, unless somebody wants to go through the graph once more.

Shapes: b batch, k queries, t tokens, c channels, d width, f feed-forward width, n classes, g classes a query.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mldecoder.heads.kernels.attention import attention, attention_backward
from mldecoder.heads.kernels.groups import SMALL, put_columns, small_groups, small_groups_backward, take_columns
from mldecoder.heads.kernels.hidden import drop_, relu_drop_backward
from mldecoder.heads.kernels.launch import Drop
from mldecoder.heads.kernels.norm import add_norm, add_norm_backward

__all__ = ["Attend", "Embed", "Finish", "GroupLinear", "QuerySide"]

QUERY, WEIGHTS, SEEN, HIDDEN, OUT = range(5)  # the five dropouts of a layer, in their order
SLICES = 4  # of the rows, in which the gradient of the hidden layer is made


class Embed(torch.autograd.Function):
    """Linear layer and ReLU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
        flat, low = _as(x, dtype).reshape(-1, x.shape[-1]), _as(weight, dtype)
        y = _linear_relu(flat, low, _as(bias, dtype))
        if ctx is not None:
            ctx.save_for_backward(flat, low, y)
            ctx.shape, ctx.dtype = x.shape, weight.dtype
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        before = torch.empty_like(y)  # the gradient before the ReLU
        d_bias = relu_drop_backward(grad.contiguous().view(y.shape), y, before, dropout=0.0, dtype=ctx.dtype)
        dx = (before @ weight).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return dx, _weight_gradient(before, x, ctx.dtype), d_bias, None


class QuerySide(torch.autograd.Function):
    """Dropout, residual, norm and projection of the queries."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        gamma: Tensor,
        beta: Tensor,
        weight: Tensor,
        bias: Tensor,
        seeds: Tensor,
        batch: int,
        dropout: float,
        eps: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        queries, low = _as(queries, dtype).contiguous(), _as(weight, dtype)
        _, k, d = queries.shape
        normed, mean, rstd = _norm_queries(queries, gamma, beta, seeds, batch * k, dropout, eps)
        projected = torch.addmm(_as(bias, dtype), normed, low.t())
        if ctx is not None:
            ctx.save_for_backward(queries, gamma, beta, low, seeds, mean, rstd)
            ctx.dropout, ctx.eps, ctx.dtype = dropout, eps, weight.dtype
        return normed.view(batch, k, d), projected.view(batch, k, d)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_normed: Tensor, d_projected: Tensor) -> tuple[Tensor | None, ...]:
        queries, gamma, beta, weight, seeds, mean, rstd = ctx.saved_tensors
        wanted, d = ctx.needs_input_grad[0], queries.shape[-1]
        flat, d_projected = queries.view(-1, d), d_projected.contiguous().view(-1, d)
        more = (d_projected @ weight, d_projected)
        own, other, sums = add_norm_backward(
            d_normed.contiguous().view(-1, d),
            flat,
            flat,
            gamma,
            mean,
            rstd,
            drop=Drop(seeds, ctx.dropout),
            which=QUERY,
            more=more,
            inputs=wanted,
        )
        d_queries = (own + other).view(-1, *queries.shape).sum(0) if wanted else None
        normed = _norm_queries(queries, gamma, beta, seeds, len(d_projected), ctx.dropout, ctx.eps)[0]
        d_weight = _weight_gradient(d_projected, normed, ctx.dtype)
        return d_queries, sums[0], sums[1], d_weight, sums[2], None, None, None, None, None


class Attend(torch.autograd.Function):
    """Keys and values, and attention to them."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        tokens: Tensor,
        weight: Tensor,
        bias: Tensor,
        mask: Tensor | None,
        seeds: Tensor,
        heads: int,
        dropout: float,
        dtype: torch.dtype,
    ) -> Tensor:
        query, tokens, low = _as(query, dtype).contiguous(), _as(tokens, dtype).contiguous(), _as(weight, dtype)
        b, t, d = tokens.shape
        kv = torch.addmm(_as(bias, dtype), tokens.view(-1, d), low.t()).view(b, t, 2 * d)
        if ctx is not None:
            ctx.save_for_backward(query, tokens, low, mask, seeds, kv)
            ctx.heads, ctx.dropout, ctx.dtype = heads, dropout, weight.dtype
        return attention(query, kv, mask, heads=heads, drop=Drop(seeds, dropout), which=WEIGHTS)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, tokens, weight, mask, seeds, kv = ctx.saved_tensors
        d = tokens.shape[-1]
        drop = Drop(seeds, ctx.dropout)
        d_query, d_kv, d_bias = attention_backward(
            grad.contiguous(), query, kv, mask, heads=ctx.heads, drop=drop, which=WEIGHTS, dtype=ctx.dtype
        )
        if query.shape[0] == 1 and d_query.shape[0] > 1:
            d_query = d_query.sum(0, keepdim=True)
        d_kv = d_kv.view(-1, 2 * d)
        d_weight = _weight_gradient(d_kv, tokens.view(-1, d), ctx.dtype)
        return d_query, (d_kv @ weight).view_as(tokens), d_weight, d_bias, None, None, None, None, None


class Finish(torch.autograd.Function):
    """Output projection, norm, feed-forward, norm.

    ``queries``, ``gamma1``, ``beta1`` and ``seeds1`` are what ``normed`` was made of; without them it is kept.
    """

    @staticmethod
    def forward(
        ctx: Any,
        normed: Tensor,
        queries: Tensor | None,
        gamma1: Tensor | None,
        beta1: Tensor | None,
        seeds1: Tensor | None,
        seen: Tensor,
        w0: Tensor,
        b0: Tensor,
        gamma2: Tensor,
        beta2: Tensor,
        w1: Tensor,
        b1: Tensor,
        w2: Tensor,
        b2: Tensor,
        gamma3: Tensor,
        beta3: Tensor,
        seeds: Tensor,
        dropout: float,
        eps: float,
        dtype: torch.dtype,
    ) -> Tensor:
        normed, seen = _as(normed, dtype).contiguous(), _as(seen, dtype).contiguous()
        low0, low1, low2 = _as(w0, dtype), _as(w1, dtype), _as(w2, dtype)
        d = seen.shape[-1]
        flat, first = seen.view(-1, d), normed.view(-1, d)
        rows, drop = flat.shape[0], Drop(seeds, dropout)
        x = torch.addmm(_as(b0, dtype), flat, low0.t())
        y, mean2, rstd2 = add_norm(first, x, gamma2, beta2, rows, drop=drop, which=SEEN, eps=eps)
        hidden = _linear_relu(y, low1, _as(b1, dtype))
        if drop.on:
            drop_(hidden, drop, which=HIDDEN)
        z = torch.addmm(_as(b2, dtype), hidden, low2.t())
        out, mean3, rstd3 = add_norm(y, z, gamma3, beta3, rows, drop=drop, which=OUT, eps=eps)
        if ctx is not None:
            source = (normed,) if queries is None else (_as(queries, dtype).contiguous(), gamma1, beta1, seeds1)
            own = (flat, low0, gamma2, low1, low2, gamma3, seeds, x, y, hidden, z, mean2, rstd2, mean3, rstd3)
            ctx.save_for_backward(*own, *source)
            ctx.dropout, ctx.eps, ctx.dtype = dropout, eps, w0.dtype
        return out.view_as(seen)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        seen, w0, gamma2, w1, w2, gamma3, seeds, x, y, hidden, z, *others = ctx.saved_tensors
        mean2, rstd2, mean3, rstd3, normed, *made_of = others
        drop, dtype, d, last = Drop(seeds, ctx.dropout), ctx.dtype, dy.shape[-1], _last_time()
        d_y, dz, sums3 = add_norm_backward(
            dy.contiguous().view(-1, d),
            y,
            z,
            gamma3,
            mean3,
            rstd3,
            drop=drop,
            which=OUT,
            into=(None, z if last else None),
        )
        d_w2 = _weight_gradient(dz, hidden, dtype)
        d_hidden, d_b1 = _hidden_gradient(dz, w2, hidden, drop, dtype, in_place=last)
        del dz
        d_w1 = _weight_gradient(d_hidden, y, dtype)
        d_y.addmm_(d_hidden, w1)  # the residual's gradient takes up what comes through the two layers
        place = d_hidden.view(-1)[: d_y.numel()].view_as(d_y) if last and d_hidden.numel() >= d_y.numel() else None
        del d_hidden
        if made_of:
            gamma1, beta1, seeds1 = made_of
            normed = _norm_queries(normed, gamma1, beta1, seeds1, len(seen), ctx.dropout, ctx.eps, place)[0]
        into = (normed if made_of and last else None, x if last else None)
        d_normed, dx, sums2 = add_norm_backward(
            d_y, normed.view(-1, d), x, gamma2, mean2, rstd2, drop=drop, which=SEEN, into=into
        )
        del d_y
        d_w0, d_seen = _weight_gradient(dx, seen, dtype), (dx @ w0).view_as(dy)
        d_normed = d_normed.view_as(dy)
        if normed.numel() < dy.numel():
            d_normed = d_normed.sum(0, keepdim=True)
        (d_g2, d_be2, d_b0), (d_g3, d_be3, d_b2) = sums2.unbind(), sums3.unbind()
        grads = (d_w0, d_b0, d_g2, d_be2, d_w1, d_b1, d_w2, d_b2, d_g3, d_be3)
        return d_normed, None, None, None, None, d_seen, *grads, None, None, None, None


class GroupLinear(torch.autograd.Function):
    """The group layer."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, slots: Tensor, class_of_slot: Tensor, dtype: torch.dtype
    ) -> Tensor:
        x, low = _as(x, dtype).contiguous(), _as(weight, dtype)
        (b, k, _), g = x.shape, weight.shape[2]
        if ctx is not None:
            ctx.save_for_backward(x, low, class_of_slot)
        if g <= SMALL:
            return small_groups(x, low, bias, class_of_slot)
        wide = x.new_empty(b, k, g)
        torch.bmm(x.transpose(0, 1), low, out=wide.transpose(0, 1))
        return take_columns(wide.view(b, k * g), slots, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, class_of_slot = ctx.saved_tensors
        k, g = x.shape[1], weight.shape[2]
        grad = grad.contiguous()
        if g <= SMALL:
            return *small_groups_backward(grad, x, weight, class_of_slot), None, None, None
        wide = put_columns(grad, class_of_slot, k).transpose(0, 1)  # (k, b, g)
        dx = torch.empty_like(x)
        torch.bmm(wide, weight.transpose(1, 2), out=dx.transpose(0, 1))
        return dx, torch.bmm(x.permute(1, 2, 0), wide), grad.sum(0), None, None, None


def _norm_queries(
    queries: Tensor,
    gamma: Tensor,
    beta: Tensor,
    seeds: Tensor,
    rows: int,
    dropout: float,
    eps: float,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``norm(q + dropout(q))``, queries repeated to ``rows`` rows, with means and inverse deviations."""
    flat = queries.view(-1, queries.shape[-1])
    return add_norm(flat, flat, gamma, beta, rows, drop=Drop(seeds, dropout), which=QUERY, eps=eps, out=out)


def _hidden_gradient(
    dz: Tensor, weight: Tensor, hidden: Tensor, drop: Drop, dtype: torch.dtype, *, in_place: bool
) -> tuple[Tensor, Tensor]:
    """Gradient ``(r, f)`` of the input of ``dropout(relu(·))``, and its sum over the rows.

    ``hidden`` is the largest thing that the head keeps; in place, slice by slice, there are never two of its size.
    """
    if not in_place:
        grad = dz @ weight
        return grad, relu_drop_backward(grad, hidden, grad, dropout=drop.probability, dtype=dtype)
    sums = [
        relu_drop_backward(part @ weight, kept, kept, dropout=drop.probability, dtype=dtype)
        for part, kept in zip(dz.chunk(SLICES), hidden.chunk(SLICES), strict=True)
    ]
    return hidden, torch.stack(sums).sum(0)


def _last_time() -> bool:
    """Whether nobody will go through the graph again (``retain_graph``), and no compiler is looking."""
    kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return not torch.compiler.is_compiling() and kept is not None and not kept()


def _linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``relu(linear(x))`` with the ReLU in the product's last step, where the library has that."""
    fused = getattr(torch, "_addmm_activation", None)
    if fused is None or torch.compiler.is_compiling():
        return F.relu(torch.addmm(bias, x, weight.t()))
    y: Tensor = fused(bias, x, weight.t())
    return y


def _weight_gradient(grad: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """``grad.T @ x``, without rounding on the way to weights that are more precise than the products."""
    if dtype == grad.dtype:
        return grad.t() @ x
    if torch.compiler.is_compiling() or not grad.is_cuda:
        return (grad.t() @ x).to(dtype)
    return torch.mm(grad.t(), x, out_dtype=dtype)


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == dtype else x.to(dtype)
