"""Work done ahead of time by threads, in order, and never more of it than fits in memory."""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["default_workers", "in_order", "quiet_pillow"]

T = TypeVar("T")
R = TypeVar("R")


def default_workers() -> int:
    """Threads that decode pictures: Pillow lets others run while it decodes and resizes."""
    return max(1, min(16, os.cpu_count() or 1))


def in_order(function: Callable[[T], R], items: Iterable[T], *, workers: int, ahead: int) -> Iterator[R]:
    """Results of a function in the order of its items; at most ``ahead + workers`` of them wait to be taken."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= ahead + workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Keep Pillow's warnings of odd EXIF and the like to ourselves.

    The decoder does so too, but Python's list of filters is one for all threads: a thread that leaves puts back
    what it found, so what it finds must be quiet already.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield
