"""Runs that are compared: how they are started, killed, and found to be the same."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.cli import environment
from tests.training.together import ROOT, Job, Step, read_trace, torchrun

TINY = [
    "data.options.count=65",  # 5 steps of 12, and 5 pictures that fill none; 13 to evaluate on
    "image.size=32",
    "head.width=16",
    "head.ff_width=16",
    "training.epochs=2",
    "training.batch_size=12",
    "training.checkpoint_steps=2",
    "training.ema_decay=0.9",
    "evaluation.batch_size=3",  # of two processes one has a batch more than the other
]
# Batch norm has statistics, and dropout masks, of each process: without them nothing depends on how a step is shared.
# Neither does plain descent, where Adam makes a step of what is rounding.
COMPARABLE = [*TINY, "backbone.name=test_vit", "backbone.options={}", "head.dropout=0.0"]
COMPARABLE += ["optimiser.kind=sgd", "optimiser.lr=1.0e-3"]
STEPS = 10


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def rows(folder: Path) -> list[dict[str, float]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in {"seconds", "images_per_second"}} for row in found]


def together(jobs: list[Job], folder: Path, processes: int) -> None:
    words = torchrun(jobs, folder, processes=processes)
    done = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]


def check_same(found: Path, expected: Path, *, exactly: bool = False, but: str | None = None) -> None:
    """Weights of all three models, but those whose name ends so, every epoch's figures and the final ones."""
    for part in ("last", "ema", "best"):
        own, other = weights(found / part), weights(expected / part)
        assert own.keys() == other.keys()
        for key, value in other.items():
            if but is not None and key.endswith(but):
                continue
            tolerance = 0.0 if exactly else 1e-6
            torch.testing.assert_close(own[key], value, rtol=100 * tolerance, atol=tolerance, msg=f"{part}: {key}")
    for row, wanted in zip(rows(found), rows(expected), strict=True):
        assert row == (wanted if exactly else pytest.approx(wanted, rel=1e-5))
        assert row["mAP"] == pytest.approx(wanted["mAP"], abs=1e-9)  # of ranks alone, so it does not round
    figures = [json.loads((folder / "metrics.json").read_text()) for folder in (found, expected)]
    assert figures[0]["mAP"] == pytest.approx(figures[1]["mAP"], abs=1e-9)
    assert figures[0]["best"] == figures[1]["best"]
    assert (found / "report.html").stat().st_size > 1000


def check_each_once(steps: list[Step]) -> None:
    for epoch in range(2):
        ids = [i for step in steps if step.step // 5 == epoch for i in step.ids]
        assert len(ids) == len(set(ids)) == 60


def kill_one(job: Job, folder: Path) -> None:
    """Start a run of two processes, ``kill -9`` the one that waits, and let torchrun bring the run to its end."""
    words = torchrun([job], folder, processes=2, restarts=1)
    log = (folder / "log").open("w")
    process = subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=log, stderr=log, start_new_session=True)
    try:
        waiting = Path(job.output) / "waiting"
        while not (waiting.exists() and waiting.read_text()):
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            time.sleep(0.02)
        os.kill(int(waiting.read_text()), signal.SIGKILL)
        assert process.wait(timeout=600) == 0, (folder / "log").read_text()[-3000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()


def check_lives(killed: Path, whole: Path, moment: int) -> None:
    """The killed run took the very steps of the whole one; what it did twice was forgotten in between."""
    lives = [[step for step in read_trace(killed) if step.life == life] for life in (0, 1)]
    assert max(step.step for step in lives[0]) in {moment - 1, moment}  # the other process may be a step ahead
    first = min(step.step for step in lives[1])
    assert first in range(moment - 3, moment + 1)  # the newest checkpoint, or the one before if that was not whole
    kept = [step for step in lives[0] if step.step < first] + lives[1]
    seen = {(step.rank, step.step): step.ids for step in kept}
    assert len(seen) == len(kept) == 2 * STEPS
    assert seen == {(step.rank, step.step): step.ids for step in read_trace(whole)}
    check_each_once(kept)
