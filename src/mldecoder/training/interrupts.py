"""Ctrl-C: who hears it, and when."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

__all__ = ["deaf_children", "end_in_silence", "finish_first"]


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes started in here do not hear Ctrl-C: it is for the main one, which ends its workers in good order."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # what came in the meantime is delivered now


@contextmanager
def finish_first() -> Iterator[None]:
    """What stands in here ends before Ctrl-C is heard; torch turns one that comes while it saves into another error."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread hears signals
        yield
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
    if heard:
        signal.raise_signal(signal.SIGINT)


def end_in_silence(_: int) -> None:
    """Let a worker process say nothing when the main one is interrupted while it takes a batch."""
    usual = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, ConnectionError | EOFError):
            usual(kind, error, trace)

    sys.excepthook = hook
