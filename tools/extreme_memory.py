"""What a step over very many classes takes: group fully-connected layer, loss and optimiser, in bytes and seconds.

    python -m tools.extreme_memory --classes 1000000 --queries 1000 --batch 256 --width 768 --device cuda --dtype bf16

Torch is all it needs. On a GPU the peak is the allocator's; on the CPU it is the sum of the tensors that exist at a
time, and sizes should be small. ``--write`` puts the table into ``benchmarks/``.

Shapes: b images, n classes, k queries, g columns a group, d width.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mldecoder.heads import GroupLinear
from mldecoder.heads.top_k import top_k
from mldecoder.losses import SparseTargets, grouped_loss
from tools.live_bytes import LiveBytes

if TYPE_CHECKING:
    from tools.tables import Table

__all__ = ["OPTIMISERS", "Setting", "measure", "table"]

NAME = "extreme-classes"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
Row = dict[str, str | float]


@dataclass(frozen=True)
class Setting:
    """Sizes, and where to run."""

    classes: int = 1_000_000
    queries: int = 1000
    batch: int = 256
    width: int = 768
    device: str = "cuda"
    dtype: str = "bf16"
    kind: str = "asymmetric"
    positives: int = 20
    unknown: int = 20
    chunk: int | None = None
    fuse: bool | None = None
    repeats: int = 20
    count: int = 100  # of top_k

    def layer(self) -> GroupLinear:
        """The layer with float32 weights, as in training under autocast."""
        with torch.device(self.device):  # random numbers for a thousand million weights are slow on a CPU
            layer = GroupLinear(self.classes, self.queries, self.width, groups="random")
        return layer.to(self.device)

    def inputs(self) -> tuple[Tensor, SparseTargets]:
        """What the decoder would give, in the precision of the products, and targets as lists."""
        x = torch.randn(self.batch, self.queries, self.width, device=self.device, dtype=DTYPES[self.dtype])
        drawn = torch.randint(self.classes, (self.batch, self.positives + self.unknown)).tolist()
        targets = SparseTargets.from_lists(
            [row[: self.positives] for row in drawn],
            unknown=[row[self.positives :] for row in drawn],
            num_classes=self.classes,
        )
        return x.requires_grad_(), targets.to(self.device)

    def loss(self, x: Tensor, layer: GroupLinear, targets: SparseTargets) -> Tensor:
        """The fused loss under autocast."""
        with self.precision():
            return grouped_loss(x, layer, targets, kind=self.kind, chunk=self.chunk, fuse=self.fuse)

    def precision(self) -> torch.autocast:
        """Autocast, unless float32 is asked for."""
        return torch.autocast(self.device, DTYPES[self.dtype], enabled=self.dtype != "fp32")


class Memory:
    """Bytes alive and their peak, by the GPU's allocator or by counting tensors."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.peak = 0

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Measure how far the memory in use rises above where it starts."""
        gc.collect()
        if self.device == "cpu":
            with LiveBytes() as count:
                yield
            self.peak = count.peak
            return
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield
        torch.cuda.synchronize()
        self.peak = torch.cuda.max_memory_allocated() - before


class Sliced:
    """An optimiser over slices of a weight, so that what a step needs beside its state is as small as a slice."""

    def __init__(self, weight: nn.Parameter, build: Callable[[list[nn.Parameter]], Optimizer], rows: int) -> None:
        self.weight, self.rows = weight, rows
        self.parts = [nn.Parameter(part) for part in torch.split(weight.detach(), rows)]  # views of the same memory
        self.optimiser = build(self.parts)

    def step(self) -> None:
        """Lend the slices their gradients, and step."""
        if self.weight.grad is not None:
            for part, gradient in zip(self.parts, torch.split(self.weight.grad, self.rows), strict=True):
                part.grad = gradient
        self.optimiser.step()
        self.optimiser.zero_grad()


def plain(build: Callable[[list[nn.Parameter]], Optimizer]) -> Callable[[GroupLinear], Optimizer]:
    """An optimiser of the whole layer."""
    return lambda layer: build(list(layer.parameters()))


def sliced(
    build: Callable[[list[nn.Parameter]], Optimizer], bytes_each: int = 2**26
) -> Callable[[GroupLinear], Sliced]:
    """An optimiser of the group weights in slices of some queries; the bias is left out, being small."""

    def make(layer: GroupLinear) -> Sliced:
        weight = layer.weight
        each = weight[0].numel() * weight.element_size()
        return Sliced(weight, build, max(1, bytes_each // each))

    return make


OPTIMISERS: Mapping[str, Callable[[GroupLinear], Optimizer | Sliced]] = {
    "SGD": plain(lambda parameters: torch.optim.SGD(parameters, lr=1e-3, foreach=False)),
    "SGD with momentum": plain(lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, foreach=False)),
    "AdamW": plain(lambda parameters: torch.optim.AdamW(parameters, lr=1e-4)),
    "AdamW, fused": plain(lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=True)),
    "Adafactor": plain(lambda parameters: torch.optim.Adafactor(parameters, lr=1e-2)),
    "Adafactor, in slices": sliced(lambda parameters: torch.optim.Adafactor(parameters, lr=1e-2)),
}


def measure(setting: Setting) -> list[Row]:
    """Measure loss with gradients, its products alone, each optimiser and top-k, a row each."""
    torch.manual_seed(0)
    layer, (x, targets) = setting.layer(), setting.inputs()
    memory = Memory(setting.device)
    weights = sum(p.numel() * p.element_size() for p in layer.parameters())
    of_x = x.numel() * x.element_size()

    def forget() -> None:
        layer.zero_grad()
        x.grad = None

    def step() -> None:
        forget()
        setting.loss(x, layer, targets).backward()  # type: ignore[no-untyped-call]

    step()  # compiles
    forget()
    with memory.watch():
        step()
    loss = f"group FC + {setting.kind} loss, forwards and backwards"
    rows = [
        _row("weights and bias", held=weights),
        _row("x, as the decoder gives it", held=of_x),
        _row("gradients of weights and bias", held=weights),
        _row("gradient of x", held=of_x),
        _row(loss, beyond=memory.peak - weights - of_x, ms=_milliseconds(setting, step)),
        _row("three batched products of its sizes", ms=_time_of_products(setting, layer, x)),
    ]
    for name, build in OPTIMISERS.items():
        rows.append(_optimiser_row(setting, name, build(layer), memory))
    forget()

    def best() -> None:
        with setting.precision():
            top_k(x, layer, min(setting.count, setting.classes))

    best()
    with memory.watch():
        best()
    rows.append(_row(f"top {setting.count} of each image", beyond=memory.peak, ms=_milliseconds(setting, best)))
    return rows


def _row(part: str, *, held: int | None = None, beyond: int | None = None, ms: float | None = None) -> Row:
    return {
        "part": part,
        "held, MiB": "" if held is None else round(held / 2**20, 3),
        "beyond, MiB": "" if beyond is None else round(beyond / 2**20, 3),
        "ms": "" if ms is None else round(ms, 2),
    }


def _optimiser_row(setting: Setting, name: str, optimiser: Optimizer | Sliced, memory: Memory) -> Row:
    """One step makes the state; the next is measured."""
    base = optimiser.optimiser if isinstance(optimiser, Sliced) else optimiser
    optimiser.step()
    tensors = [t for state in base.state.values() for t in state.values() if isinstance(t, Tensor)]
    with memory.watch():
        optimiser.step()
    state = sum(t.numel() * t.element_size() for t in tensors)
    return _row(f"state and step of {name}", held=state, beyond=memory.peak, ms=_milliseconds(setting, optimiser.step))


def _products(weight: Tensor, x: Tensor) -> None:
    """Logits, gradient of the weight and gradient of x as batched products, over some queries at a time."""
    k, _, g = weight.shape
    size = max(1, min(k, 2**24 // (len(x) * g)))
    for first in range(0, k, size):
        inputs, weights = x[:, first : first + size].transpose(0, 1), weight[first : first + size]
        logits = torch.bmm(inputs, weights)
        torch.bmm(inputs.transpose(1, 2), logits)
        torch.bmm(logits, weights.transpose(1, 2))


@torch.no_grad()
def _time_of_products(setting: Setting, layer: GroupLinear, x: Tensor) -> float:
    """What the products take with their weights cast before the clock starts: less than any training step can do."""
    weight, inputs = layer.weight.to(x.dtype), x.detach()
    return _milliseconds(setting, lambda: _products(weight, inputs))


def _milliseconds(setting: Setting, function: Callable[[], None]) -> float:
    """The median over some runs."""
    times = []
    for _ in range(setting.repeats):
        _wait(setting)
        started = time.perf_counter()
        function()
        _wait(setting)
        times.append(time.perf_counter() - started)
    return 1000 * median(times)


def _wait(setting: Setting) -> None:
    if setting.device != "cpu":
        torch.cuda.synchronize()


def table(rows: list[Row], setting: Setting, commit: str, hardware: str, name: str = NAME) -> "Table":
    """The table for ``benchmarks/``."""
    from tools.tables import Table  # it needs more than torch

    s = setting
    return Table(
        name,
        f"{s.classes:,} classes, {s.queries:,} queries, batch {s.batch}, width {s.width}: what a step takes",
        f"python -m tools.extreme_memory --classes {s.classes} --queries {s.queries} --batch {s.batch} "
        f"--width {s.width} --device {s.device} --dtype {s.dtype} --kind {s.kind} --write"
        + ("" if name == NAME else f" --name {name}"),
        commit,
        hardware,
        rows,
        f"Weights are float32, x and the products {s.dtype}; targets are lists of {s.positives} positives and "
        f"{s.unknown} unknown labels an image. *Held* stays for the whole step. *Beyond* is the peak above what is "
        "held: for the loss above weights, x, and their gradients; for an optimiser above its state. Times are medians "
        f"of {s.repeats} runs. The three products have their weights in {s.dtype} before the clock starts and do "
        "not write the gradient of the weights in float32. Dense logits and their gradient would take "
        f"{2 * 4 * s.batch * s.classes / 2**20:,.0f} MiB in float32.",
    )


def main() -> None:
    """Measure, show and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Setting()
    for name in ("classes", "queries", "batch", "width", "positives", "unknown", "repeats", "count"):
        parser.add_argument(f"--{name}", type=int, default=getattr(default, name))
    parser.add_argument("--device", default=default.device, choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default=default.dtype, choices=list(DTYPES))
    parser.add_argument("--kind", default=default.kind, choices=["asymmetric", "bce", "focal"])
    parser.add_argument("--chunk", type=int, help="Logits an image at a time.")
    parser.add_argument("--fuse", action=argparse.BooleanOptionalAction, help="Compile the costs or not.")
    parser.add_argument("--write", action="store_true", help="Write benchmarks/NAME.{md,json}.")
    parser.add_argument("--name", default=NAME, help="With --write: the table's name.")
    parser.add_argument("--hardware", help="With --write: what it ran on.")
    parser.add_argument("--commit", help="With --write: the commit measured.")
    arguments = vars(parser.parse_args())
    write, hardware, commit = (arguments.pop(key) for key in ("write", "hardware", "commit"))
    name = arguments.pop("name")
    if write and not (hardware and commit):
        parser.error("--write needs --hardware and --commit")
    setting = Setting(**arguments)
    rows = measure(setting)
    sys.stdout.write("".join(json.dumps(row) + "\n" for row in rows))
    if write:
        table(rows, setting, commit, hardware, name).write()


if __name__ == "__main__":
    main()
