"""Scale a large tensor in place by a number that only the GPU knows, at no cost where that number is 1.

A Triton kernel: torch would read and write the whole tensor, and asking for the number would stop the GPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["scale_"]

BLOCK = 4096  # values that a program takes at a time
PROGRAMS = 2048  # a few for each part of a large GPU; each takes many blocks


@triton.jit  # type: ignore[untyped-decorator]
def _scale_kernel(values, factor, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    by = tl.load(factor)
    if by != 1.0:
        step = tl.num_programs(0).to(tl.int64) * BLOCK
        first = tl.program_id(0).to(tl.int64) * BLOCK
        for start in range(first, count, step):
            place = start + tl.arange(0, BLOCK)
            inside = place < count
            value = tl.load(values + place, mask=inside)
            tl.store(values + place, (value * by).to(value.dtype), mask=inside)


def scale_(values: Tensor, factor: Tensor) -> None:
    """Multiply contiguous ``values`` by the one number in ``factor``, in place."""
    count = values.numel()
    programs = min(triton.cdiv(count, BLOCK), PROGRAMS)
    if programs:
        with torch.cuda.device_of(values):  # type: ignore[no-untyped-call]
            _scale_kernel[(programs,)](values, factor, count, BLOCK=BLOCK)
