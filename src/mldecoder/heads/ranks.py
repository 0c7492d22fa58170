"""Processes that share a layer: who owns what, and how values travel between them.

What travels is uneven: the last batch of a process may be smaller, and the queries need not divide evenly.

Shapes: b images of this process, a images of all processes, k queries, q queries of one process, d width.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["Ranks"]


class Ranks:
    """The processes of a group, or this process alone where torch.distributed has not been started.

    Autograd's own all-to-all is not used: ``torch.distributed.nn`` is deprecated, and what is to replace it is private.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank(group) if self.together else 0
        self.size = dist.get_world_size(group) if self.together else 1

    def __deepcopy__(self, memo: dict[int, Any]) -> "Ranks":
        return self  # a copy of a model, such as its moving average, lives in the same processes

    def __repr__(self) -> str:
        return f"rank {self.rank} of {self.size}"

    def shares(self, count: int) -> list[slice]:
        """Cut ``count`` things that follow each other into one share a process, as ``torch.chunk`` and DTensor do.

        The first shares are ceil(count / size) large and the last ones may be smaller or empty. Even shares would not
        lower the largest, which decides what fits.
        """
        each = -(-count // self.size)
        return [slice(min(r * each, count), min((r + 1) * each, count)) for r in range(self.size)]

    def numbers(self, own: Sequence[int], device: torch.device) -> list[list[int]]:
        """Tell all processes a few whole numbers, as many each: a list a process."""
        if self.size == 1:
            return [list(own)]
        row = torch.tensor(own, dtype=torch.long, device=device)
        rows = [torch.empty_like(row) for _ in range(self.size)]
        dist.all_gather(rows, row, group=self.group)
        return cast("list[list[int]]", torch.stack(rows).tolist())

    def gather(self, own: Tensor, counts: Sequence[int]) -> list[Tensor]:
        """Give every process the tensors of all; they differ in their first size, ``counts``. No gradients."""
        if self.size == 1:
            return [own]
        longest = max(*counts, 1)
        padded = own.new_zeros(longest, *own.shape[1:])
        padded[: len(own)] = own.detach()
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded, group=self.group)
        return [part[:count] for part, count in zip(parts, counts, strict=True)]

    def to_queries(self, x: Tensor, images: Sequence[int], *, factor: float = 1.0) -> Tensor:
        """From all queries of one's own images to one's own queries of all images: ``(b, k, d) -> (a, q, d)``.

        Args:
            x: What the decoder gives.
            images: How many images each process has.
            factor: What the gradient of ``x`` is multiplied with on the way back.
        """
        if self.size == 1:
            return x
        b, k, d = x.shape
        shares = [share.stop - share.start for share in self.shares(k)]
        own = shares[self.rank]
        sent = torch.cat([part.flatten() for part in torch.split(x, shares, dim=1)])
        received = self._exchange(sent, [b * q * d for q in shares], [a * own * d for a in images], factor)
        return received.view(sum(images), own, d)

    def to_images(self, y: Tensor, images: Sequence[int], columns: Sequence[int]) -> Tensor:
        """Columns of all images to all columns of one's own images: ``(a, own columns) -> (b, all columns)``."""
        if self.size == 1:
            return y
        b, own = images[self.rank], columns[self.rank]
        received = [b * c for c in columns]
        flat = self._exchange(y.flatten(), [a * own for a in images], received, 1.0)
        parts = [part.view(b, c) for part, c in zip(torch.split(flat, received), columns, strict=True)]
        return torch.cat(parts, dim=1)

    def add_up(self, value: Tensor) -> Tensor:
        """Sum of every process's value; the gradient goes to this process's own, for the others have theirs."""
        return value if self.size == 1 else cast(Tensor, _Sum.apply(value, self.group))

    def _exchange(self, x: Tensor, sent: list[int], received: list[int], factor: float) -> Tensor:
        return cast(Tensor, _Exchange.apply(x, sent, received, factor, self.group))


class _Context(torch.autograd.function.FunctionCtx):
    """What the way forwards leaves for the way back."""

    sent: list[int]
    received: list[int]
    factor: float
    group: dist.ProcessGroup | None


class _Exchange(torch.autograd.Function):
    """All-to-all of a flat tensor; the gradient goes back the same way."""

    @staticmethod
    def forward(
        ctx: _Context, x: Tensor, sent: list[int], received: list[int], factor: float, group: dist.ProcessGroup | None
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.factor, ctx.group = sent, received, factor, group
        out = x.new_empty(sum(received))
        dist.all_to_all_single(out, x, received, sent, group=group)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        out = grad.new_empty(sum(ctx.sent))
        dist.all_to_all_single(out, grad.contiguous(), ctx.sent, ctx.received, group=ctx.group)
        if ctx.factor != 1:
            out.mul_(ctx.factor)
        return out, None, None, None, None


class _Sum(torch.autograd.Function):
    """Sum over the processes, for a value that each of them differentiates on its own."""

    @staticmethod
    def forward(_ctx: _Context, value: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        total = value.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(_ctx: _Context, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
