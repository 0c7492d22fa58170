"""Ctrl-C and what is printed where nobody looks at a terminal."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import mldecoder as mld
from mldecoder.training.interrupts import finish_first
from tests.cli import command, environment

TINY = [
    "data.options.count=60",
    "data.workers=2",
    "image.size=32",
    "head.width=16",
    "head.ff_width=16",
    "training.epochs=3",
    "training.batch_size=10",
    "training.checkpoint_steps=2",
]


def start(folder: Path) -> "subprocess.Popen[str]":
    """Train in a process group of its own, as a shell does, with nothing said about colours."""
    words = [word for override in TINY for word in ("--set", override)]
    settings = environment(TERM="xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        settings.pop(name, None)
    return subprocess.Popen(
        command("train", "--recipe", "scenes", "--output", str(folder), *words),
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("sign", ["run.yaml", "checkpoint.pt"])
def test_an_interrupted_run_says_one_line_and_can_be_resumed(tmp_path: Path, sign: str) -> None:
    folder = tmp_path / "run"
    process = start(folder)
    while not (folder / sign).exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches the worker processes too
    shown, complaints = process.communicate(timeout=60)
    assert process.returncode == 130
    assert complaints == ""
    lines = shown.splitlines()
    assert lines[-1] == f"Stopped. Go on with: mldecoder train --resume --output {folder}"
    assert sum("Stopped" in line for line in lines) == 1
    assert not any(mark in shown for mark in ("\x1b", "\r", "\b"))

    mld.train(output=folder, resume=True, quiet=True)
    assert json.loads((folder / "metrics.json").read_text())["epochs"] == 3
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3


def test_off_the_terminal_there_are_plain_lines_only(tmp_path: Path) -> None:
    process = start(tmp_path / "run")
    shown, complaints = process.communicate(timeout=120)
    assert process.returncode == 0
    assert complaints == ""
    assert all(line.isprintable() and line == line.rstrip() for line in shown.split("\n"))
    begins = ["Data: scenes, ", "Model: test_resnet ", *(f"Epoch {epoch}/3: loss " for epoch in (1, 2, 3)), "Best mAP "]
    found = [line for line in shown.splitlines() if not line.startswith(("Warning: ", "Note: "))]
    assert [line.startswith(begin) for line, begin in zip(found, begins, strict=True)] == [True] * len(begins)


def test_what_must_be_finished_is_finished_before_an_interrupt_is_heard() -> None:
    before, done = signal.getsignal(signal.SIGINT), []

    def write() -> None:
        with finish_first():
            signal.raise_signal(signal.SIGINT)
            done.append("written")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert done == ["written"]
    assert signal.getsignal(signal.SIGINT) is before
    with finish_first():
        pass  # nothing came, nothing is raised
