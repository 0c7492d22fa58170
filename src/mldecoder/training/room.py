"""How much memory is free, and whether something fits into it."""

import os
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch

from mldecoder.errors import ConfigError

__all__ = ["check_room", "free_memory"]

_GROUP = Path("/sys/fs/cgroup")


def free_memory(device: torch.device, group: Path = _GROUP) -> int:
    """Bytes that are free on a device; of the machine's own memory this process's part of what is available.

    Processes that torchrun started together on a machine share it. A container may allow less than the machine has.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    available = min(psutil.virtual_memory().available, _left_by_container(group))
    return int(available) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _left_by_container(group: Path) -> float:
    """What the control group (version 2) still allows; files that were read can be forgotten."""
    try:
        limit = int((group / "memory.max").read_text())  # the word "max" where there is none
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(stat["inactive_file"]))
    except (OSError, ValueError, KeyError):
        return float("inf")


def check_room(what: str, needed: int, device: torch.device, way_out: str) -> None:
    """Raise where something needs more than half of what is free: the other half is for the model."""
    free = free_memory(device)
    if needed > free / 2:
        raise ConfigError(
            f"{what} needs {needed / 1e9:,.1f} GB, at most half of the {free / 1e9:,.1f} GB free on {device} may be "
            f"taken. {way_out}"
        )
