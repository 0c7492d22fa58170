"""A Ray to work on: one that runs somewhere, or one that lives as long as the work."""

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from mldecoder.errors import ConfigError

__all__ = ["LOCAL", "Slots", "check_installed", "joined", "slots"]

LOCAL = "local"
"""The address that means: start one here, and end it with the work."""

_STORE = 256 * 2**20  # bytes for what passes between processes: the model, and lists of numbers


@dataclass(frozen=True)
class Slots:
    """Where models can sit: how many, and what each takes."""

    count: int
    cpus: int
    gpus: int


def check_installed() -> None:
    """Say how to get Ray, before a model is loaded."""
    if find_spec("ray") is None:
        raise ConfigError("Work on several machines needs Ray, which is not installed: pip install 'mldecoder[scale]'")


@contextmanager
def joined(address: str, *, store: int = 0) -> Iterator[None]:
    """Work on the Ray at an address, or on a new one on this machine; one that this process is in already is kept.

    Args:
        address: ``"local"``, ``"auto"`` (the one on this machine) or ``HOST:PORT``.
        store: Bytes of the largest object, for a new one.
    """
    check_installed()
    import ray

    if address.startswith("ray://"):
        raise ConfigError(
            f"The address must be HOST:PORT of the head node, got {address}, a client's. Start the command on a "
            f"node of the cluster, or with `ray job submit`."
        )
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        options |= {"include_dashboard": False, "object_store_memory": max(_STORE, 3 * store)}
        options |= {"_node_ip_address": "127.0.0.1"}  # its ports are for this machine only
    try:
        with quiet():
            ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0].removesuffix(".")
        raise ConfigError(f"There is no Ray at {address} ({reason}). Start one with `ray start --head`.") from None
    try:
        yield
    finally:
        with quiet():
            ray.shutdown()


@contextmanager
def quiet() -> Iterator[None]:
    """Ray opens log files that it never closes, and warns of its own old names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ResourceWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"ray\.")
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"ray\.")
        yield


def slots(nodes: Sequence[dict[str, Any]] | None = None) -> Slots:
    """What the machines that are there now have room for.

    With accelerators, one model each and its share of the cores to decode. Without, one model for every core of
    small machines and for every four of large ones: a process more costs memory, a core more in one gives less.

    Args:
        nodes: As ``ray.nodes()`` tells; asked when ``None``.
    """
    if nodes is None:
        import ray

        nodes = ray.nodes()  # type: ignore[no-untyped-call]
    rooms = [node.get("Resources", {}) for node in nodes if node.get("Alive", node.get("alive"))]
    gpus = [(int(room["GPU"]), int(room.get("CPU", 0))) for room in rooms if room.get("GPU", 0) >= 1]
    if gpus:
        cpus = max(1, min(cores // devices for devices, cores in gpus))
        return Slots(sum(min(devices, cores // cpus) for devices, cores in gpus), cpus, 1)
    cores = [int(room.get("CPU", 0)) for room in rooms if room.get("CPU", 0) >= 1]
    cpus = max(1, min(4, min(cores, default=1) // 4))
    return Slots(sum(one // cpus for one in cores), cpus, 0)
