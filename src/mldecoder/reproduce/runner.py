"""Runs one after the other, or some side by side as processes; what is done stays done, whatever ends the call."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mldecoder.errors import ConfigError, TrainingError
from mldecoder.reproduce.job import job_to, record_of, run_job
from mldecoder.reproduce.plan import Job
from mldecoder.reproduce.results import Record, Results

__all__ = ["run_jobs"]

Watch = Callable[[Job, str], None]
_PATIENCE = 60  # seconds that interrupted processes have to end in good order


def run_jobs(jobs: Sequence[Job], results: Results, *, parallel: int = 1, watch: Watch, quiet: bool = False) -> None:
    """Bring every job to its end and note its record; finished ones are skipped, unfinished ones resumed.

    The first one that fails ends the call, once those beside it are done. After Ctrl-C, too, the same call goes on
    from there.

    Args:
        jobs: The runs.
        results: Where their records go.
        parallel: How many side by side.
        watch: Told about every job, and what becomes of it.
        quiet: Let the runs print nothing.
    """
    if parallel < 1:
        raise ConfigError(f"--parallel must be at least 1, got {parallel}.")
    waiting: list[Job] = []
    for job in jobs:
        if results.find(job.key) is not None:
            watch(job, "done before")
        elif (record := record_of(job)) is not None:  # its call ended before it could note it
            results.add(record)
            watch(job, "done before")
        elif all(job.key != other.key for other in waiting):  # rows can come to the same settings
            waiting.append(job)
    if parallel == 1:
        for job in waiting:
            watch(job, "begins")
            _note(job, run_job(job, quiet=quiet), results, watch)
    else:
        _side_by_side(waiting, results, parallel, watch)


@dataclass
class _Running:
    job: Job
    process: "subprocess.Popen[bytes]"
    log: Path


def _side_by_side(waiting: list[Job], results: Results, parallel: int, watch: Watch) -> None:
    workers = max(1, (os.cpu_count() or 1) // parallel)
    queue, running, failed = list(waiting), list[_Running](), list[str]()
    try:
        while running or (queue and not failed):
            while queue and not failed and len(running) < parallel:
                running.append(_start(queue.pop(0), workers))
                watch(running[-1].job, "begins")
            time.sleep(0.1)
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                record = record_of(one.job)
                if record is None:
                    failed.append(_failure(one))
                    watch(one.job, "failed")
                else:
                    _note(one.job, record, results, watch)
    finally:
        _stop(running)
    if failed:
        raise TrainingError(f"{failed[0]} Mend it and call again: what is done is kept.")


def _start(job: Job, workers: int) -> _Running:
    folder = Path(job.folder)
    file, log = folder.with_suffix(".job.json"), folder.with_suffix(".log")
    job_to(job, file)
    with log.open("ab") as told:
        words = [sys.executable, "-m", "mldecoder.reproduce.job", str(file), str(workers)]
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process, which passes it on once
        )
    return _Running(job, process, log)


def _stop(running: Sequence[_Running]) -> None:
    """Interrupt the processes, and end those that do not listen."""
    for one in running:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGINT)
    end = time.monotonic() + _PATIENCE
    for one in running:
        try:
            one.process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()


def _failure(one: _Running) -> str:
    lines = one.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1] if lines else f"it ended with code {one.process.returncode}."
    return f"The run {one.job.row!r}, seed {one.job.seed}, failed: {last.rstrip('.')}. Log: {one.log}."


def _note(job: Job, record: Record, results: Results, watch: Watch) -> None:
    results.add(record)
    watch(job, f"done in {record.seconds:.0f} s")
