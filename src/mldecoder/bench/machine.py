"""On what the figures were measured, and with which code."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import mldecoder
from mldecoder.bench.place import Place, machine_memory
from mldecoder.bench.sizes import show_bytes

__all__ = ["commit", "hardware", "versions"]

_PACKAGES = ("torch", "triton", "torchvision", "timm", "numpy")


def hardware(place: Place) -> dict[str, object]:
    """The processor, the GPU where it is used, and their memory."""
    found: dict[str, object] = {
        "device": place.device.type,
        "cpu": _cpu(),
        "cpu_count": os.cpu_count(),
        "cpu_threads": torch.get_num_threads(),
        "memory_bytes": machine_memory(),
    }
    if place.cuda:
        properties = torch.cuda.get_device_properties(place.device)
        found |= {
            "gpu": properties.name,
            "gpu_memory_bytes": int(properties.total_memory),
            "compute_capability": f"{properties.major}.{properties.minor}",
        }
    text = str(found.get("gpu", found["cpu"]))
    memory = show_bytes(place.total_memory)
    found["text"] = f"{text}, {memory}" + ("" if place.cuda else f", threads: {torch.get_num_threads()}")
    return found


def versions() -> dict[str, str | None]:
    """Of Python, this package and what it computes with."""
    found: dict[str, str | None] = {"python": platform.python_version(), "mldecoder": mldecoder.__version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found | {"cuda": torch.version.cuda, "matmul_precision": torch.get_float32_matmul_precision()}


def commit() -> str | None:
    """The commit of the package's code, with ``+changes`` where files differ from it; None where git knows nothing."""
    home = Path(mldecoder.__file__).parent
    if not _git(home, "ls-files", "__init__.py"):  # the package may lie inside a repository of somebody else's
        return None
    name = _git(home, "rev-parse", "--short=12", "HEAD")
    return f"{name}+changes" if name and _git(home, "status", "--porcelain", ".") else name or None


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
