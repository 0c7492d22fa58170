"""Tags for files and folder trees of any size, written as they come."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch

from mldecoder.model import Classifier
from mldecoder.predict.ahead import quiet_pillow
from mldecoder.predict.listed import check_paths, listed
from mldecoder.predict.output import Format, Output
from mldecoder.predict.predictor import Predictor

__all__ = ["Summary", "check_paths", "fingerprint", "tag_files"]


@dataclass(frozen=True)
class Summary:
    """What came of a run over files."""

    before: int  # done by an earlier run
    tagged: int
    broken: int
    seconds: float
    broken_path: Path


def tag_files(
    predictor: Predictor,
    paths: Sequence[str | Path],
    output: Path,
    format: Format,
    *,
    overwrite: bool = False,
    advance: Callable[[int, int], None] = lambda _done, _broken: None,
) -> Summary:
    """Tag all pictures in files and folders, and write the results; goes on where an earlier call stopped.

    Memory does not grow with the number of files. Kill it at any moment and call it again: the output then holds
    every file once.

    Args:
        predictor: The model with its labels and thresholds.
        paths: Picture files, folders that are searched to their bottom, lists (``.txt``) and tar shards.
        output: The file to write, for Parquet the folder.
        format: ``"json"`` (one object a line), ``"csv"`` or ``"parquet"``.
        overwrite: Begin anew instead of going on.
        advance: Is told how many pictures were tagged, and how many were broken, so far.
    """
    check_paths(paths)
    start, tagged, broken = time.monotonic(), 0, 0
    with Output(output, format, settings_of(predictor), overwrite=overwrite) as out, quiet_pillow():
        left = (source for source in listed(paths) if source.name not in out.done)
        for batch in predictor.batches(left):
            out.write(batch)
            bad = sum(one.error is not None for one in batch)
            tagged, broken = tagged + len(batch) - bad, broken + bad
            advance(tagged, broken)
        before, broken_path = len(out.done), out.broken_path
    return Summary(before, tagged, broken, time.monotonic() - start, broken_path)


def settings_of(predictor: Predictor) -> dict[str, object]:
    """What results depend on."""
    config = predictor.model.config
    return {
        "model": fingerprint(predictor.model),
        "labels": list(predictor.labels),
        "top_k": predictor.top_k,
        "thresholds": predictor.thresholds.tolist(),
        "calibration": [config.temperature, config.bias],
        "preprocessing": config.preprocessing.model_dump(mode="json"),
    }


def fingerprint(model: Classifier) -> str:
    """A short name for a model's weights."""
    digest = blake2b(digest_size=8)
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
