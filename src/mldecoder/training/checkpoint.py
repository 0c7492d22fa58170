"""What a run needs to go on as if nothing had happened.

No random state is in it: see :mod:`mldecoder.training.order`.
"""

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from mldecoder.errors import CheckpointError
from mldecoder.training.interrupts import finish_first

__all__ = ["Checkpoint", "Progress"]


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
