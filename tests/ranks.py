"""Processes that work together in tests: started once, asked many times.

``run(world, function, *arguments)`` calls ``function(rank, group, *arguments)`` in ``world`` processes (gloo, CPU) and
returns what each of them gave. Functions must stand at the top of a module.
"""

import atexit
import functools
import multiprocessing
import shutil
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

MOST = 4


def run(world: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:  # noqa: ANN401
    """What the function gives in each of ``world`` processes, the first ones of those that wait."""
    helpers = _helpers()[:world]
    for helper in helpers:
        helper.send((function, world, arguments))
    answers = [helper.recv() for helper in helpers]
    for rank, (fine, answer) in enumerate(answers):
        assert fine, f"process {rank} of {world}:\n{answer}"
    return [answer for _, answer in answers]


@functools.cache
def _helpers() -> list[Connection]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mldecoder.model"])
    folder = tempfile.mkdtemp(prefix="ranks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    meeting = Path(folder) / "meeting"
    ends = []
    for rank in range(MOST):
        ours, theirs = context.Pipe()
        context.Process(target=_work, args=(rank, str(meeting), theirs), daemon=True).start()
        ends.append(ours)
    return ends


def _work(rank: int, meeting: str, end: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=MOST, timeout=timedelta(minutes=5)
    )
    groups = {world: dist.new_group(list(range(world))) for world in range(1, MOST + 1)}
    while True:
        try:
            function, world, arguments = end.recv()
        except EOFError:
            return
        try:
            end.send((True, function(rank, groups[world], *arguments)))
        except BaseException:  # the test is told, whatever it was
            end.send((False, traceback.format_exc()))
