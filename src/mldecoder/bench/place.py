"""Where the heads are measured: device, numbers, and how much memory there is."""

import gc
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mldecoder.bench.settings import BenchSettings
from mldecoder.errors import ConfigError

__all__ = ["Place", "find_place", "kernel_trials", "machine_memory", "recompiling"]

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_COMPILATIONS = 64
_CGROUP = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Place:
    """A device and the numbers it computes with.

    Attributes:
        device: ``cpu`` or ``cuda``.
        precision: ``bf16``, ``fp16`` or ``fp32``.
        autocast: Whether weights stay in float32.
    """

    device: torch.device
    precision: str
    autocast: bool

    @property
    def cuda(self) -> bool:
        """Whether this is a GPU, where memory can be measured."""
        return self.device.type == "cuda"

    @property
    def dtype(self) -> torch.dtype:
        """The type of weights and input."""
        return torch.float32 if self.autocast else _DTYPES[self.precision]

    @property
    def total_memory(self) -> int:
        """Bytes of the device."""
        if self.cuda:
            return int(torch.cuda.get_device_properties(self.device).total_memory)
        return machine_memory()

    def casting(self) -> AbstractContextManager[object]:
        """What a forward pass runs in."""
        if not self.autocast:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=_DTYPES[self.precision])

    def synchronise(self) -> None:
        """Wait until the device has done what it was given."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def release(self) -> None:
        """Give memory that nobody holds back to the device."""
        if self.cuda:
            gc.collect()
            with suppress(RuntimeError):  # a device that a kernel has broken; the cells say so
                torch.cuda.empty_cache()


def find_place(settings: BenchSettings) -> Place:
    """The device that was asked for, or the best there is."""
    there = torch.cuda.is_available()
    if settings.device == "cuda" and not there:
        raise ConfigError("torch finds no CUDA device here. Use --device cpu, or install torch for your GPU's driver.")
    kind = "cuda" if there and settings.device != "cpu" else "cpu"
    if settings.batch is None and kind == "cpu":
        raise ConfigError("--batch auto fills a GPU's memory, and this is a CPU. Give a number, such as --batch 8.")
    if settings.graph and kind == "cpu":
        raise ConfigError("--graph records CUDA graphs, and this is a CPU. Leave it out.")
    precision = settings.precision
    if precision == "auto":
        precision = "bf16" if kind == "cuda" else "fp32"
    device = torch.device("cuda", torch.cuda.current_device()) if kind == "cuda" else torch.device("cpu")
    return Place(device, precision, settings.autocast and precision != "fp32")


def machine_memory() -> int:
    """Bytes of main memory that this process may use."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP.read_text(encoding="ascii").strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical


@contextmanager
def kernel_trials(wanted: bool) -> Iterator[None]:
    """Whether cuDNN tries its kernels for each new shape and takes the fastest, as who trains a network lets it.

    Without it a slow backbone hides the cost of the head.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = wanted
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def recompiling(wanted: bool) -> Iterator[None]:
    """Let ``torch.compile`` compile the same class for every head; past its limit it would run uncompiled, unsaid."""
    if not wanted:
        yield
        return
    import torch._dynamo.config as found  # takes seconds to import

    config: Any = found
    with config.patch(recompile_limit=_COMPILATIONS, fail_on_recompile_limit_hit=True):
        yield
