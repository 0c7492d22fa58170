"""Run the command line as a user does, in its own process."""

import os
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["command", "environment", "run"]


def command(*arguments: str, launcher: Sequence[str] = ()) -> list[str]:
    """The words that start the command line here, by a launcher such as torchrun where one is given."""
    return [sys.executable, *launcher, "-m", "mldecoder", *arguments]


def environment(**extra: str) -> dict[str, str]:
    return os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"} | extra


def run(*arguments: str, timeout: float = 300, launcher: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
    words = command(*arguments, launcher=launcher)
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=environment(), check=False)
