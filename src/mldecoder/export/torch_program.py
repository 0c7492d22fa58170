"""A recorded graph as a torch program (``.pt2``), and such a file run by torch."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from mldecoder.export.check import Run
from mldecoder.export.metadata import KEY

__all__ = ["EXTRA_FILE", "runner", "save"]

EXTRA_FILE = f"{KEY}.json"


def save(program: ExportedProgram, path: Path, metadata: str) -> None:
    """Write the file; ``torch.export.load(path, extra_files={"mldecoder.json": ""})`` gives the metadata back."""
    program.example_inputs = None  # the pictures that it was recorded on
    torch.export.save(program, path, extra_files={EXTRA_FILE: metadata})


def runner(path: Path) -> Run:
    """A function that runs the file."""
    module = torch.export.load(path).module()

    def run(inputs: Sequence[NDArray[np.generic]]) -> NDArray[np.float32]:
        with torch.no_grad():
            result = module(*(torch.from_numpy(np.array(one)) for one in inputs))
        return np.asarray(result.numpy(), dtype=np.float32)

    return run
