"""Checkpoints of a model in shards: every process writes its own part (torch.distributed.checkpoint).

A checkpoint is a folder named after its place, ``checkpoint/EPOCH-STEP``. Torch writes its index last, and moves it
into place: a folder with an index is whole, others do not count. The index says where each piece of each weight lies,
so any number of processes can read it.
"""

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.optim import Optimizer

from mldecoder.errors import CheckpointError
from mldecoder.training.checkpoint import Progress
from mldecoder.training.interrupts import finish_first
from mldecoder.training.split_checkpoint import fill_shares, parted, shares_of

__all__ = ["CheckpointFolder"]

INDEX = ".metadata"  # torch's name


class CheckpointFolder:
    """Checkpoints in shards, written in the background; the newest whole one is kept.

    Messages about checkpoints go through a group of their own: they come from another thread than training's, and
    must not meet its messages.

    Args:
        path: Folder of the checkpoints; all processes see the same one.
        trained: The module that the optimiser's parameters belong to.
        main: Whether this process is the first one.
    """

    def __init__(self, path: Path, trained: nn.Module, *, main: bool = True) -> None:
        self.path, self.trained, self.main = path, trained, main
        self.many = dist.is_initialized() and dist.get_world_size() > 1
        self._group: Any = dist.new_group(backend="gloo") if self.many else None
        self._pending: Future[Any] | None = None

    def save(self, progress: Progress, parts: Mapping[str, Any]) -> None:
        """Copy this process's part and begin to write it; a single process has no shards and writes at once."""
        self.finish()
        place = self.path / f"{progress.epoch:05d}-{progress.step:07d}"
        state = self._state(parts)[0] | {"rest": json.dumps(asdict(progress) | {"plain": self._plain(parts)})}
        if self.many:
            written: Any = async_save(state, checkpoint_id=place, process_group=self._group)
            self._pending = written
            return
        with finish_first(), _alone():
            save(state, checkpoint_id=place, no_dist=True)
        self._clear()

    def load(self, parts: Mapping[str, Any]) -> Progress | None:
        """Fill the parts from the newest whole checkpoint, however many processes wrote it."""
        place = self._agreed(self._newest())
        if place is None:
            return None
        state, own = self._state(parts)
        state |= {"rest": ""}
        try:
            with _alone():
                load(state, checkpoint_id=place, process_group=self._group, no_dist=not self.many)
        except (CheckpointException, RuntimeError, OSError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise CheckpointError(f"{place} cannot be read: {reason}") from error
        rest = json.loads(state["rest"])
        for name, value in rest.pop("plain").items():
            parts[name].load_state_dict(value)
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                set_model_state_dict(part, state[name] | own[name])
            elif isinstance(part, Optimizer):
                state[name]["state"] |= own[name]
                set_optimizer_state_dict(self.trained, _bare(part), state[name])
        for name, part in parts.items():  # the optimiser has its own state for them by now
            if isinstance(part, nn.Module):
                fill_shares(part, state.get(f"{name} shares", {}), self._optimiser_of(name, parts))
        return Progress(**rest)

    def finish(self) -> Path | None:
        """Wait for the checkpoint that is being written; older ones go when it is whole."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
            self._clear()
        return self._newest()

    def _state(self, parts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Everything with tensors, by names that do not depend on the number of processes.

        The share that a process has of a split layer stands in it as a part of the whole layer. What the process itself
        calls it comes beside, by part: no other process has the same tensor by that name.
        """
        state: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                state[name], own[name] = parted(get_model_state_dict(part), part)
            elif isinstance(part, Optimizer):
                state[name] = dict(get_optimizer_state_dict(self.trained, _bare(part)))
                state[name]["state"], own[name] = parted(state[name]["state"], self.trained)
        for name, part in parts.items():  # torch has made the state of a fresh optimiser by now
            if isinstance(part, nn.Module) and (shares := shares_of(part, self._optimiser_of(name, parts))):
                state[f"{name} shares"] = shares
        return state, own

    @staticmethod
    def _optimiser_of(name: str, parts: Mapping[str, Any]) -> Optimizer | None:
        """The optimiser of a part: an average has none."""
        return _bare(parts["optimiser"]) if name == "model" else None

    @staticmethod
    def _plain(parts: Mapping[str, Any]) -> dict[str, Any]:
        """What is numbers and words only, such as the schedule."""
        return {name: part.state_dict() for name, part in parts.items() if not isinstance(part, nn.Module | Optimizer)}

    def _newest(self) -> Path | None:
        """The newest checkpoint that is whole."""
        return max((index.parent for index in self.path.glob(f"*/{INDEX}")), default=None)

    def _agreed(self, place: Path | None) -> Path | None:
        """The first process's answer, in all of them."""
        if not self.many:
            return place
        answer = [place]
        dist.broadcast_object_list(answer, src=0, group=self._group)
        return answer[0]

    def _clear(self) -> None:
        """Take away what the newest checkpoint replaces: older ones, and what a killed process left half written."""
        newest = self._newest()
        if self.main and newest is not None:
            for folder in self.path.iterdir():
                if folder != newest:
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _alone() -> Iterator[None]:
    """Without torch's warning that a single process saves or loads."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _bare(optimiser: Optimizer) -> Optimizer:
    """The optimiser that Accelerate wraps."""
    bare: Optimizer = getattr(optimiser, "optimizer", optimiser)
    return bare
