"""What goes wrong in a cell is a result of the cell."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from mldecoder.bench.place import Place
from mldecoder.bench.rows import OOM

__all__ = ["Failure", "attempt", "is_out_of_memory"]

T = TypeVar("T")
_LONGEST = 160
_SAYINGS = (  # how allocators say it where they raise a plain RuntimeError
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


@dataclass(frozen=True)
class Failure:
    """Why a cell has no figure: ``OOM`` or ``error: ...``, and the sentence behind it."""

    status: str
    detail: str = ""


def attempt(action: Callable[[], T], place: Place) -> tuple[T | None, Failure | None]:
    """Run something; of an error only the sentence is kept, so that what it held in memory goes."""
    try:
        result = action()
        place.synchronise()  # an error of a kernel shows here, not in the next cell
    except Exception as error:  # Ctrl-C is none of these and goes through
        failure = _failure(error)
    else:
        return result, None
    place.release()
    return None, failure


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory was not enough."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(saying in str(error) for saying in _SAYINGS)


def _failure(error: Exception) -> Failure:
    lines = str(error).strip().splitlines()
    first = lines[0].strip() if lines else type(error).__name__
    if is_out_of_memory(error):
        return Failure(OOM, first[:_LONGEST])
    return Failure(f"error: {first[:_LONGEST]}", f"{type(error).__name__}: {first}"[: 2 * _LONGEST])
