"""A model in a process of its own, turning blocks of names into parts of the output.

Pixels never pass from process to process. A block is read, decoded in threads while the model scores the batch before,
and written, all here; what goes back is a line of text about it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mldecoder.predict.ahead import quiet_pillow
from mldecoder.predict.device import best_device
from mldecoder.predict.lake_batch import fitting_batch
from mldecoder.predict.lake_todo import read_block
from mldecoder.predict.output import write_part
from mldecoder.predict.predictor import Predictor

__all__ = ["Job", "Tagger"]


@dataclass(frozen=True)
class Job:
    """What every worker must know.

    Args:
        todo: The file with the blocks.
        folder: Where parts go.
        base: The folder that relative paths are seen from.
        batch_size: Pictures scored together; ``None`` finds out what suits the device.
        workers: Threads that decode.
    """

    todo: Path
    folder: Path
    base: Path
    batch_size: int | None
    workers: int


class Tagger:
    """Tags blocks.

    Args:
        predictor: The model with its labels and thresholds; it is moved to the best device here.
        job: What to do.
    """

    def __init__(self, predictor: Predictor, job: Job) -> None:
        self.job = job
        self.unseen = next((path for path in (job.todo, job.folder, job.base) if not path.exists()), None)
        device = best_device()
        self.predictor = predictor
        predictor.model.to(device).eval()
        if predictor.text_vectors is not None:
            predictor.text_vectors = predictor.text_vectors.to(device)
        predictor.workers = job.workers
        predictor.batch_size = job.batch_size or fitting_batch(predictor, device)

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Tag the blocks of a batch: numbers, offsets and lengths to one line about each."""
        rows = zip(batch["number"], batch["offset"], batch["length"], strict=True)
        return {"report": np.array([json.dumps(self.tag(*map(int, row))) for row in rows], dtype=object)}

    def tag(self, number: int, offset: int, length: int) -> dict[str, object]:
        """Tag one block, write its part, and say what came of it."""
        if self.unseen is not None:  # every picture would be missing too
            return {"number": number, "unseen": str(self.unseen)}
        name, sources = read_block(self.job.todo, offset, length, self.job.base)
        with quiet_pillow():
            made = list(self.predictor.stream(sources))
        whole = [one for one in made if one.error is None]
        if whole:
            write_part(self.job.folder, name, whole)
        broken = [[one.name, one.error] for one in made if one.error is not None]
        return {"number": number, "tagged": len(whole), "broken": broken}
