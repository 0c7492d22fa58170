"""Start kernels without paying for Triton's lookup each time, and draw their random masks."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["Drop", "Kernel", "column_sums", "keep", "processors"]

Numbers = tuple[int | float, ...]


class Drop(NamedTuple):
    """Dropout: random numbers on the device, one for each mask, and how much is dropped."""

    seeds: Tensor
    probability: float

    @property
    def on(self) -> bool:
        """Whether anything is dropped."""
        return self.probability > 0

    @property
    def chance(self) -> tuple[int, float]:
        """The 32-bit number below which a hash means "drop", and what the others are multiplied by."""
        return int(self.probability * 2**32), 1 / (1 - self.probability)


class Kernel:
    """A Triton function that remembers its compiled forms.

    Triton finds the compiled form anew at every call, from the types, the alignment and some properties of the
    numbers: 100 microseconds on a slow host, where the kernels themselves take 10 to 100. Here one look at a
    dictionary does it; the key holds all that the compiled form may depend on.

    Args:
        function: What ``triton.jit`` returned. Its arguments are tensors, then numbers, then constants.
    """

    def __init__(self, function: Any) -> None:  # noqa: ANN401  (Triton has no types)
        self.function = function
        self._ready: dict[tuple[object, ...], Any] = {}

    def __call__(
        self,
        grid: tuple[int, ...],
        tensors: tuple[Tensor, ...],
        numbers: Numbers,
        constants: tuple[int | bool, ...],
        *,
        warps: int = 4,
        stages: int = 3,
    ) -> None:
        """Run on the current stream."""
        if torch.compiler.is_compiling():
            self.function[grid](*tensors, *numbers, *constants, num_warps=warps, num_stages=stages)
            return
        places = 0
        for tensor in tensors:
            places |= tensor.data_ptr()
        key = (numbers, constants, tensors[0].device.index, warps, stages, *[tensor.dtype for tensor in tensors])
        aligned = places % 16 == 0  # else Triton looks for itself: a compiled form may rely on it
        compiled = self._ready.get(key) if aligned else None
        if compiled is not None:
            compiled[(*grid, 1, 1)[:3]](*tensors, *numbers, *constants)
            return
        compiled = self.function[grid](*tensors, *numbers, *constants, num_warps=warps, num_stages=stages)
        if aligned:
            self._ready[key] = compiled


@triton.jit
def keep(seed, place, threshold):
    """Which places stay: a bit-mixing hash of place and seed (62 random bits), compared with the dropped share."""
    x = place.to(tl.uint32) + seed.to(tl.uint32)
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x ^= (seed >> 32).to(tl.uint32)
    x *= 0x846CA68B
    x ^= x >> 16
    return x >= threshold


@triton.jit
def _column_sums(partial, out, parts, D: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    which = tl.program_id(1)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, parts, ROWS):
        row = start + tl.arange(0, ROWS)
        ok = (row < parts)[:, None] & (col < D)[None, :]
        total += tl.load(partial + (which * parts + row)[:, None] * D + col[None, :], ok, 0.0)
    tl.store(out + which * D + col, tl.sum(total, 0), col < D)


_column_sums_kernel = Kernel(_column_sums)


def column_sums(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Add up ``(s, p, d)`` over p: ``(s, d)``."""
    sets, parts, d = partial.shape
    out = torch.empty(sets, d, device=partial.device, dtype=dtype)
    _column_sums_kernel((triton.cdiv(d, 16), sets), (partial, out), (parts,), (d, 128, 16))
    return out


def processors(x: Tensor) -> int:
    """How many multiprocessors the device has."""
    known = _PROCESSORS.get(x.device.index)
    if known is None:
        known = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
        if not torch.compiler.is_compiling():
            _PROCESSORS[x.device.index] = known
    return known


_PROCESSORS: dict[int | None, int] = {}
