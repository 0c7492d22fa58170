"""Tags for more pictures than one machine gets through: the same rows, by a pool of models on Ray."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mldecoder.errors import ConfigError, DataError
from mldecoder.predict.files import Summary, settings_of
from mldecoder.predict.lake_pool import pool
from mldecoder.predict.lake_ray import LOCAL, Slots, check_installed, joined, slots
from mldecoder.predict.lake_todo import Block, write_todo
from mldecoder.predict.lake_worker import Job
from mldecoder.predict.listed import check_paths, listed
from mldecoder.predict.output import Output
from mldecoder.predict.prediction import Prediction
from mldecoder.predict.predictor import Predictor

__all__ = ["tag_lake"]

_TRIES = 3  # that bring nothing, before it is given up
_LOOK = 1.0  # seconds between two looks at the machines


def tag_lake(
    predictor: Predictor,
    paths: Sequence[str | Path],
    output: Path,
    *,
    address: str = LOCAL,
    batch_size: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    advance: Callable[[int, int], None] = lambda _done, _broken: None,
    listing: Callable[[int], None] = lambda _count: None,
    patience: float = 60.0,
) -> Summary:
    """Tag all pictures in files, folders, lists and shards on Ray; goes on where an earlier call stopped.

    The output is that of ``tag_files`` with ``"parquet"``, and either goes on with what the other began. A part is
    written by one process under another name and renamed, and holds what its name says: kill anything at any moment
    and call it again, the output then holds every picture once. All machines must see pictures and output alike.

    Args:
        predictor: The model with its labels and thresholds, on the CPU.
        paths: Picture files, folders that are searched to their bottom, lists (``.txt``) and tar shards.
        output: The folder to write.
        address: Where Ray runs: ``"local"`` starts one here, ``"auto"`` takes the one that runs here, or ``HOST:PORT``.
        batch_size: Pictures scored together; ``None`` finds out what suits the devices.
        workers: Threads that decode beside each model; ``None`` takes its share of the cores.
        overwrite: Begin anew instead of going on.
        advance: Is told how many pictures were tagged, and how many were broken, so far.
        listing: Is told how many pictures were found so far.
        patience: Seconds without a result, after machines were lost, until work begins anew on those left.
    """
    check_installed()
    check_paths(paths)
    start, tagged, broken = time.monotonic(), 0, 0
    with Output(output, "parquet", settings_of(predictor), overwrite=overwrite) as out:
        todo = output.with_name(f".{output.name}.todo").absolute()
        try:
            blocks = dict(enumerate(write_todo(todo, listed(paths), out.done.__contains__, listed=listing)))
            if blocks:
                size = sum(value.nbytes for value in predictor.model.state_dict().values())
                with joined(address, store=size):
                    job = Job(todo, output.absolute(), Path.cwd(), batch_size, workers or _room().cpus)
                    for report in _work(predictor, blocks, job, patience):
                        bad = [_broken(predictor, name, reason) for name, reason in report["broken"]]
                        out.write(bad)
                        tagged, broken = tagged + report["tagged"], broken + len(bad)
                        advance(tagged, broken)
        finally:
            todo.unlink(missing_ok=True)
        before, broken_path = len(out.done), out.broken_path
    return Summary(before, tagged, broken, time.monotonic() - start, broken_path)


def _work(predictor: Predictor, blocks: dict[int, Block], job: Job, patience: float) -> Iterator[dict[str, Any]]:
    """What came of each block, once; begins anew with what is left when machines were lost on the way."""
    import ray

    work = ray.put((predictor, job))
    left, in_vain = dict(blocks), 0
    while left:
        room, before, reason = _room(), len(left), "no machine is left that could"
        with pool(left, work, room) as coming:
            try:
                for report in _until_stuck(coming, room.count, patience):
                    if "unseen" in report:
                        raise DataError(
                            f"A machine of the cluster does not see {report['unseen']}. Pictures and output must be "
                            f"there for all of them, in a folder that they share."
                        )
                    if left.pop(report["number"], None) is not None:
                        yield report
            except ray.exceptions.RayError as error:
                reason = str(error).strip().splitlines()[-1].strip()
        in_vain = in_vain + 1 if len(left) == before else 0
        if in_vain == _TRIES:
            pictures = sum(block.count for block in left.values())
            raise DataError(
                f"Ray could not tag the last {pictures:,} pictures ({reason}). What is done is in {job.folder}; "
                f"call again to go on."
            )


def _until_stuck(coming: Any, models: int, patience: float) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """Reports as they come, until all are there, or machines are gone and nothing comes any more.

    Ray starts a lost model again where there is room. Where there is none it would wait for ever, with the blocks that
    the model had in hand.
    """
    import ray

    last = time.monotonic()
    while True:
        ready, _ = ray.wait([coming], timeout=_LOOK)
        if ready:
            try:
                lines = ray.get(next(coming))
            except StopIteration:
                return
            yield from map(json.loads, lines)
            last = time.monotonic()
        elif time.monotonic() - last > patience and slots().count < models:
            return


def _room() -> Slots:
    room = slots()
    if room.count == 0:
        raise ConfigError("The Ray cluster has no machine with a core to work on. Add one with `ray start`.")
    return room


def _broken(predictor: Predictor, name: str, reason: str) -> Prediction:
    return Prediction(name, (), predictor.labels, predictor.thresholds[:0], predictor.thresholds, reason)
