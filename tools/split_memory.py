"""What each process holds when a head's group layer is split over several: measured, and beside it the formula.

    python -m tools.split_memory --classes 200000 --queries 400 --width 768 --batch 16 --processes 1 2 4

Runs on the CPU (gloo). Bytes are counted from the tensors that exist at a time, and, since an operator may take
memory of its own, by how far the process grows (Linux only). ``--write`` puts the table into ``benchmarks/``.

Shapes: b images of a process, n classes, k queries, d width.
"""

import argparse
import gc
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from mldecoder.heads.ranks import Ranks
from mldecoder.heads.split import SplitGroupLinear
from mldecoder.heads.split_top_k import split_top_k
from mldecoder.losses import SparseTargets
from mldecoder.losses.split import split_loss
from mldecoder.losses.split_cost import SplitBytes, bytes_moved, split_bytes
from tools.live_bytes import LiveBytes

if TYPE_CHECKING:
    from tools.tables import Table

__all__ = ["Measured", "Setting", "measure", "measure_process", "table"]

MIB = 2**20
PAPER = {"classes": 10_000_000, "queries": 1000, "width": 768, "batch": 1024}
Row = dict[str, str | int | float]


@dataclass(frozen=True)
class Setting:
    """Sizes."""

    classes: int = 200_000
    queries: int = 400
    width: int = 768
    batch: int = 16  # of all processes together
    listed: int = 40  # labels an image
    count: int = 100  # of top-k

    def formula(self, processes: int) -> SplitBytes:
        """What AdamW should take."""
        return split_bytes(self.classes, self.queries, self.width, processes, "adamw", self.batch, listed=self.listed)


@dataclass(frozen=True)
class Measured:
    """Bytes on one process."""

    weights: int
    numbering: int
    gradients: int
    state: int
    own: int  # the decoder's queries of its images
    beyond: int  # the peak of loss and backward above all those
    top_k: int  # the peak of top-k above weights and queries
    grown: int  # how far the process grew over all that, at most

    @property
    def peak(self) -> int:
        """The most at a time in a step."""
        return self.weights + self.numbering + self.gradients + self.state + self.own + self.beyond


def measure_process(setting: Setting, ranks: Ranks) -> Measured:
    """Two steps with AdamW on one of the processes; the second is measured. All call it together."""
    torch.manual_seed(ranks.rank)
    growth = _Growth()
    layer = SplitGroupLinear(setting.classes, setting.queries, setting.width, groups="random", ranks=ranks)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-4, fused=True)
    x, targets = _inputs(setting, ranks)
    peak = 0
    for _ in range(2):
        x.grad = None
        optimiser.zero_grad()
        with _watch() as count:
            split_loss(x, layer, targets).backward()  # type: ignore[no-untyped-call]
            gradients = _bytes(p.grad for p in layer.parameters())
            peak = count.peak
        optimiser.step()
    grown = growth.most()
    state = _bytes(t for values in optimiser.state.values() for t in values.values())
    optimiser.zero_grad()
    with _watch() as count:
        split_top_k(x, layer, min(setting.count, setting.classes))
    return Measured(
        weights=_bytes(layer.parameters()),
        numbering=_bytes(layer.buffers()),
        gradients=gradients,
        state=state,
        own=_bytes([x]),
        beyond=peak - gradients,
        top_k=count.peak,
        grown=grown,
    )


def measure(setting: Setting, processes: int) -> list[Measured]:
    """Start processes and measure each."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(_start, (processes, setting, folder), nprocs=processes)  # type: ignore[no-untyped-call]
        texts = [(Path(folder) / f"{rank}.json").read_text() for rank in range(processes)]
    return [Measured(**json.loads(text)) for text in texts]


def _start(rank: int, processes: int, setting: Setting, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes)
    measure_process(Setting(200, 20, 8, batch=2 * processes, count=5), Ranks())  # what is loaded at first use is loaded
    measured = measure_process(setting, Ranks())
    (Path(folder) / f"{rank}.json").write_text(json.dumps(asdict(measured)))
    dist.destroy_process_group()


def _inputs(setting: Setting, ranks: Ranks) -> tuple[Tensor, SparseTargets]:
    own = ranks.shares(setting.batch)[ranks.rank]
    images = own.stop - own.start
    x = torch.randn(images, setting.queries, setting.width, requires_grad=True)
    drawn = torch.randint(setting.classes, (images, setting.listed)).tolist()
    half = setting.listed // 2
    targets = SparseTargets.from_lists(
        [row[:half] for row in drawn], unknown=[row[half:] for row in drawn], num_classes=setting.classes
    )
    return x, targets


@contextmanager
def _watch() -> Iterator[LiveBytes]:
    gc.collect()
    with LiveBytes() as count:
        yield count


def _bytes(tensors: object) -> int:
    found = [t for t in tensors if isinstance(t, Tensor)]  # type: ignore[attr-defined]
    return sum(t.numel() * t.element_size() for t in found)


class _Growth:
    """How far this process grows from here on, by the kernel's own mark."""

    def __init__(self) -> None:
        gc.collect()
        marks = Path("/proc/self/clear_refs")
        if marks.exists():
            marks.write_text("5")  # forget the highest mark so far
        self.start = _status("VmRSS")

    def most(self) -> int:
        """The highest mark since, above the start."""
        return _status("VmHWM") - self.start


def _status(name: str) -> int:
    file = Path("/proc/self/status")
    found = re.search(rf"{name}:\s+(\d+) kB", file.read_text()) if file.exists() else None
    return 1024 * int(found.group(1)) if found else 0


def row_of(setting: Setting, processes: int, measured: list[Measured], alone: Measured) -> Row:
    """The largest process as a row."""
    most = max(measured, key=lambda one: one.peak)
    paper = setting.formula(processes)
    return {
        "processes": processes,
        "classes": setting.classes,
        "queries": setting.queries,
        "batch": setting.batch,
        "weights": _mib(most.weights),
        "numbering": _mib(most.numbering),
        "gradients": _mib(most.gradients),
        "AdamW's state": _mib(most.state),
        "x of own images": _mib(most.own),
        "loss beyond": _mib(most.beyond),
        "peak": _mib(most.peak),
        "by the formula": _mib(paper.peak),
        "of one process": round(most.peak / alone.peak, 3),
        "process grew": _mib(most.grown),
        "top-k": _mib(most.top_k),
    }


def paper_row(ranks: int, classes: int, queries: int, width: int, batch: int) -> Row:
    """A size that is only computed, on GPUs: x in bf16, costs compiled."""
    found = split_bytes(classes, queries, width, ranks, "adamw", batch, precision=2, fused=True)
    alone = split_bytes(classes, queries, width, 1, "adamw", batch, precision=2, fused=True)
    return {
        "processes": ranks,
        "classes": classes,
        "queries": queries,
        "batch": batch,
        "weights": _mib(found.weights),
        "numbering": _mib(found.numbering),
        "gradients": _mib(found.gradients),
        "AdamW's state": _mib(found.state),
        "x of own images": _mib(found.own),
        "by the formula": _mib(found.peak),
        "of one process": round(found.peak / alone.peak, 3),
    }


def table(rows: list[Row], setting: Setting, processes: list[int], commit: str, hardware: str) -> "Table":
    """The table for ``benchmarks/``."""
    from tools.tables import Table  # every process would import what it needs

    s = setting
    moved = bytes_moved(PAPER["queries"], PAPER["width"], 8, PAPER["batch"], 196, precision=2)
    command = (
        f"python -m tools.split_memory --classes {s.classes} --queries {s.queries} --width {s.width} "
        f"--batch {s.batch} --processes {' '.join(map(str, processes))} --write"
    )
    return Table(
        "split-head",
        f"A head's group layer split over processes, width {s.width}: MiB on the process that has most",
        command,
        commit,
        hardware,
        rows,
        "Rows with a peak are measured on the CPU in float32; *peak* counts the tensors alive at once in a step with "
        f"AdamW (fused) and lists of {s.listed} labels an image. *Loss beyond* is what stands above the columns before "
        "it: the queries received from other processes with their gradient, what travels back, and a block of the loss "
        "(at most 128 MiB, however many processes). *Process grew* is the kernel's mark of the resident memory. Rows "
        "without a peak are computed by `mldecoder.losses.split_cost.split_bytes`, with x and products in bf16 and "
        f"compiled costs. On eight processes a step of the last row moves {_mib(moved['queries'])} MiB to each; "
        "to split the decoder by queries instead, and send the tokens of all images (196 an image), would move "
        f"{_mib(moved['tokens'])} MiB.",
    )


def _mib(count: int) -> float:
    return round(count / MIB, 1)


def main() -> None:
    """Measure, show and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in asdict(Setting()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--write", action="store_true", help="Write benchmarks/split-head.{md,json}.")
    parser.add_argument("--hardware", help="With --write: what it ran on.")
    parser.add_argument("--commit", help="With --write: the commit measured.")
    arguments = vars(parser.parse_args())
    processes, write, hardware, commit = (arguments.pop(name) for name in ("processes", "write", "hardware", "commit"))
    if write and not (hardware and commit):
        parser.error("--write needs --hardware and --commit")
    setting = Setting(**arguments)
    found = {count: measure(setting, count) for count in sorted({1, *processes})}
    rows = [row_of(setting, count, measured, found[1][0]) for count, measured in found.items()]
    rows += [paper_row(ranks, **PAPER) for ranks in (1, 8)]
    rows = [{column: row.get(column, "") for column in rows[0]} for row in rows]
    sys.stdout.write("".join(json.dumps(row) + "\n" for row in rows))
    if write:
        table(rows, setting, processes, commit, hardware).write()


if __name__ == "__main__":
    main()
