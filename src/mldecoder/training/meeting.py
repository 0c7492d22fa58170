"""Processes that torchrun starts anew find each other.

torchrun keeps one store for all lives of its processes, so a new process may read the address of a dead one and fail
to connect (https://github.com/pytorch/pytorch/issues/135712; seen with torch 2.14 and gloo after every ``kill -9``).
A number of restarts that all agree on does not exist either: each machine counts its own. So the processes first agree
on who is there, and then connect under the name of that meeting, which is new each time.
"""

import os
import time
import uuid
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch re-exports it without saying so
from torch.distributed.distributed_c10d import PrefixStore, Store

from mldecoder.errors import TrainingError

__all__ = ["agree", "meet"]

PATIENCE = 600.0  # seconds; reading a large model's code from a slow disk takes one of them


def meet() -> None:
    """Connect the processes of torchrun, also those of ``accelerate launch``; others are left to Accelerate."""
    if dist.is_initialized() or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world == 1:
        return
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=PATIENCE))
    name = agree(PrefixStore("mldecoder", store), rank, world)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=PrefixStore(name, store), rank=rank, world_size=world)


def agree(store: Store, rank: int, world: int, patience: float = PATIENCE) -> str:
    """A name for this meeting that all its processes have, and no earlier one had.

    Everyone leaves a fresh token. The first process proposes the tokens it finds; who finds its own among them agrees.
    When all have agreed to one proposal, everyone in it is alive, and it is the name.
    """
    token = uuid.uuid4().hex
    store.set(f"token {rank}", token)
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if rank == 0:
            proposal = " ".join(_read(store, f"token {i}") for i in range(world))
            store.set("proposal", proposal)
            store.set("agreed 0", proposal)
            if all(_read(store, f"agreed {i}") == proposal for i in range(world)):
                store.set("name", proposal)
        elif token in (proposal := _read(store, "proposal")):
            store.set(f"agreed {rank}", proposal)
        if token in (name := _read(store, "name")):
            return name.replace(" ", "-")
        time.sleep(0.05)
    missing = [i for i in range(world) if not _read(store, f"token {i}")]
    raise TrainingError(
        f"{world} processes were to meet within {patience:.0f} seconds, got {world - len(missing)}. "
        f"Look at the others' messages, and whether the machines reach each other."
    )


def _read(store: Store, key: str) -> str:
    """What stands in the store, or nothing."""
    return str(store.get(key), "ascii") if store.check([key]) else ""
