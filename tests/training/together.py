"""Training as torchrun starts it, and watched: which pictures each step saw, how much of the model a process holds.

``python -m torch.distributed.run ... -m tests.training.together jobs.json`` runs the jobs one after another, so that
several runs cost one start. A job may copy its folder at a step, or wait there to be killed.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor
from torch.distributed.tensor import DTensor

import mldecoder as mld
from mldecoder.heads.split import SplitGroupLinear
from mldecoder.heads.split_training import split_layers
from mldecoder.training import sharded
from mldecoder.training.loading import Batch
from mldecoder.training.loop import Trainer

__all__ = ["Job", "Step", "read_trace", "torchrun"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Job:
    """One run; before the step ``copy_at`` its folder is copied, before ``wait_at`` the last process waits."""

    output: str
    overrides: tuple[str, ...] = ()
    resume: bool = False
    copy_at: int | None = None
    wait_at: int | None = None


@dataclass(frozen=True)
class Step:
    """What one process did in one step; a life begins when torchrun starts the process."""

    life: int
    rank: int
    step: int
    ids: tuple[int, ...]
    held: float  # share of the numbers of model (or split layer), average and optimiser that this process has


def torchrun(jobs: Sequence[Job], folder: Path, *, processes: int, restarts: int = 0) -> list[str]:
    """The words that run the jobs in so many processes."""
    file = folder / "jobs.json"
    file.write_text(json.dumps([asdict(job) for job in jobs]))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    launcher += ["--max-restarts", str(restarts), "-m", "tests.training.together", str(file)]
    return [sys.executable, *launcher]


def read_trace(output: Path) -> list[Step]:
    """Every step of a run, in the order in which each process took them."""
    lines = [line for file in sorted(output.glob("trace-*.jsonl")) for line in file.read_text().splitlines()]
    found = (json.loads(line) for line in lines)
    return [Step(row["life"], row["rank"], row["step"], tuple(row["ids"]), row["held"]) for row in found]


def run(job: Job) -> None:
    """Train, watched."""
    plain = Trainer._step
    life, rank, world = (int(os.environ[name]) for name in ("TORCHELASTIC_RESTART_COUNT", "RANK", "WORLD_SIZE"))
    trace = Path(job.output) / f"trace-{rank}.jsonl"

    def watched(self: Trainer, step: int) -> tuple[Tensor, list[Batch]]:
        if step == job.copy_at:
            self.store.finish()  # what the other process still does is in memory
            if rank == 0:
                shutil.copytree(job.output, f"{job.output}-copy")
        if step == job.wait_at and life == 0 and rank == world - 1:
            (Path(job.output) / "waiting").write_text(str(os.getpid()))
            time.sleep(600)
        result = plain(self, step)
        ids = [int(i) for batch in result[1] for i in batch.indices]
        with trace.open("a") as file:
            print(json.dumps({"life": life, "rank": rank, "step": step, "ids": ids, "held": held(self)}), file=file)
        return result

    Trainer._step = watched  # type: ignore[method-assign]
    try:
        mld.train(
            recipe=None if job.resume else "scenes",
            output=job.output,
            overrides=job.overrides,
            resume=job.resume,
            quiet=True,
        )
    finally:
        Trainer._step = plain  # type: ignore[method-assign]


def held(trainer: Trainer) -> float:
    """Numbers that are here, over all numbers there are; of a split layer alone, where there is one."""
    for layer in split_layers(trainer.plain):
        return held_of_split(trainer, layer)
    tensors = list(trainer.plain.parameters())
    tensors += [] if trainer.ema is None else trainer.ema.model.parameters()
    tensors += [t for state in trainer.optimiser.state.values() for t in state.values() if getattr(t, "ndim", 0)]
    here = sum((t.to_local() if isinstance(t, DTensor) else t).numel() for t in tensors)
    return float(here / sum(t.numel() for t in tensors))


def held_of_split(trainer: Trainer, layer: SplitGroupLinear) -> float:
    """The same of a split layer's weights, their average and their optimiser state."""
    tensors: list[Tensor] = [layer.share.weight]
    tensors += [] if trainer.ema is None else [split_layers(trainer.ema.model)[0].share.weight]
    tensors += [t for t in trainer.optimiser.state[layer.share.weight].values() if getattr(t, "ndim", 0)]
    return sum(t.numel() for t in tensors) / (len(tensors) * layer.num_queries * layer.width * layer.group_size)


if __name__ == "__main__":
    sharded.LEAST = 1000  # the blocks of a tiny model are units too
    for words in json.loads(Path(sys.argv[1]).read_text()):
        run(Job(**words))
