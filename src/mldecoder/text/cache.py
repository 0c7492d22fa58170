"""Label vectors kept on disk, so that a text tower reads a list of labels once.

One safetensors file for each encoder, options and list of labels. A file that is cut off or altered is made again.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor

from mldecoder import cache

__all__ = ["cache_folder", "kept"]

_VERSION = 1  # goes up when the same key would give other vectors


def cache_folder() -> Path:
    """Where label vectors are kept."""
    return cache.cache_folder() / "text"


def kept(folder: Path, key: object, count: int, compute: Callable[[], Tensor]) -> Tensor:
    """The vectors that were kept under ``key``, or those of ``compute``, which are then kept.

    Args:
        folder: Where the files lie; it is made when needed. One that cannot be written is no reason to stop.
        key: Anything JSON can write; all that the vectors depend on.
        count: How many vectors there must be.
        compute: Makes them, ``(count, width)`` float32.
    """
    name = hashlib.sha256(json.dumps([_VERSION, key], sort_keys=True).encode()).hexdigest()
    path = folder.expanduser() / f"{name[:32]}.safetensors"
    found = _read(path, count)
    if found is not None:
        return found
    vectors = compute()
    with contextlib.suppress(OSError):
        _write(path, vectors)
    return vectors


def _read(path: Path, count: int) -> Tensor | None:
    """The vectors in the file; ``None`` when there is no whole file."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            vectors: Tensor = file.get_tensor("vectors")
            digest = (file.metadata() or {}).get("sha256")
    except (OSError, safetensors.SafetensorError):
        return None
    intact = vectors.ndim == 2 and len(vectors) == count and vectors.dtype == torch.float32
    return vectors if intact and digest == _digest(vectors) else None


def _write(path: Path, vectors: Tensor) -> None:
    """Write beside, then rename: another process sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(save({"vectors": vectors.contiguous()}, metadata={"sha256": _digest(vectors)}))
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _digest(vectors: Tensor) -> str:
    return hashlib.sha256(vectors.contiguous().numpy().tobytes()).hexdigest()
