"""What a run needs to go on as if nothing had happened, written in the background.

No random state is in it: see :mod:`mldecoder.training.order`. Where every process has the whole model, the first one
writes a file (here); where the model is in shards, so is its checkpoint (:mod:`mldecoder.training.sharded_checkpoint`).
"""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from mldecoder.errors import CheckpointError
from mldecoder.training.interrupts import finish_first

__all__ = ["Checkpoint", "CheckpointFile", "Progress", "Store"]


@dataclass
class Progress:
    """Where a run stands: the next step to take, and what it has found so far."""

    epoch: int = 0
    step: int = 0  # within the epoch
    loss_sum: float = 0.0  # over the epoch's steps so far
    seconds: float = 0.0  # of the epoch so far
    best: float = -1.0
    best_source: str = ""
    history: list[dict[str, float]] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)  # training pictures that were skipped, and why


@dataclass
class Checkpoint:
    """Progress and every state with numbers that training changes."""

    progress: Progress
    states: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write the file so that it is complete or the old one stays, even if the machine loses power."""
        part = path.with_name(f".{path.name}.part")
        with finish_first(), part.open("wb") as file:
            torch.save({"progress": asdict(self.progress), "states": self.states}, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Read what :meth:`save` wrote."""
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, OSError) as error:
            raise CheckpointError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
        return cls(Progress(**content["progress"]), content["states"])


class Store(Protocol):
    """Where a run's checkpoints are."""

    def save(self, progress: Progress, parts: Mapping[str, Any]) -> None:
        """Keep the state of now; writing it goes on in the background. Every process calls this."""

    def load(self, parts: Mapping[str, Any]) -> Progress | None:
        """Fill the parts with the newest whole checkpoint, and say where it stands; ``None`` where there is none."""

    def finish(self) -> Path | None:
        """Wait for what is being written; returns the newest whole checkpoint."""


class CheckpointFile:
    """One file, written by the first process in a thread of its own.

    The numbers are copied before :meth:`save` returns, so training goes on while they are written. The file is moved
    into place when it is whole: a kill at any moment leaves the old one or the new one.

    Args:
        path: The file.
        writes: Whether this process is the one that writes.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, progress: Progress, parts: Mapping[str, Any]) -> None:
        """Copy the states and begin to write them."""
        if not self.writes:
            return
        self.finish()  # one at a time: what is written last is the newest
        states: dict[str, Any] = {name: _copied(part.state_dict()) for name, part in parts.items()}
        checkpoint = Checkpoint(Progress(**asdict(progress)), states)
        self._pending = self._thread.submit(checkpoint.save, self.path)

    def load(self, parts: Mapping[str, Any]) -> Progress | None:
        """Fill the parts from the file."""
        if not self.path.exists():
            return None
        checkpoint = Checkpoint.load(self.path)
        for name, part in parts.items():
            part.load_state_dict(checkpoint.states[name])
        return checkpoint.progress

    def finish(self) -> Path | None:
        """Wait for the file that is being written; what went wrong is raised here."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
        return self.path if self.path.exists() else None


def _copied(state: object) -> object:
    """The state as it is now, in memory that training does not touch."""
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copied(value) for value in state)
    return state
