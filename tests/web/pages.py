"""A page that runs as users start it, and the pictures to try it with."""

import io
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import mldecoder as mld
from mldecoder.data import scenes
from tests.cli import environment
from tests.predict.pictures import scene

__all__ = ["png", "running_page", "save_zero_shot"]


def png(i: int) -> bytes:
    """The bytes of a drawn scene's file."""
    file = io.BytesIO()
    scene(i).save(file, "PNG")
    return file.getvalue()


def save_zero_shot(folder: Path) -> Path:
    """An untrained model that takes any words, with a text encoder of its own: a file of a few words."""
    words = sorted({word for label in scenes.LABELS for word in label.split()} | {"dog", "sunset"})
    vectors = np.random.default_rng(0).normal(size=(len(words), 8))
    table = folder / "words.npz"
    np.savez(table, names=np.array(words), vectors=vectors)
    head = {"kind": "zero-shot", "width": 16, "ff_width": 16, "heads": 2}
    model = mld.create_model("test_resnet", labels=scenes.LABELS, head=head, img_size=64, text=f"words:{table}")
    model.save_pretrained(folder / "best")
    return folder


# Writes down every address that the process wants to reach, whatever library asks.
_WATCHED = """
import sys
def note(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        with open({log!r}, "a") as file:
            print(event, *arguments[1:] if event != "socket.getaddrinfo" else arguments, file=file)
sys.addaudithook(note)
from mldecoder.cli import main
main()
"""


@contextmanager
def running_page(run: Path, *options: str) -> Iterator[str]:
    """Start ``mldecoder web`` on a free port, as a user does; Ctrl-C must end it cleanly.

    That the server reached out for nothing in all its life is checked at the end.
    """
    log = run / "reached-for.txt"
    process = subprocess.Popen(
        [sys.executable, "-c", _WATCHED.format(log=str(log)), "web", str(run), "--port", "0", *options],
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://\S+", line)
        assert address is not None, line + process.stdout.read()
        yield address[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stdout.read().splitlines()[-1] == "Stopped."
        reached = log.read_text().splitlines() if log.exists() else []
        assert [line for line in reached if "127.0.0.1" not in line] == []
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
