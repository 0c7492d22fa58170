"""Time of a step. Heads take turns, so that a machine that slows down slows all of them down."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from mldecoder.bench.failure import Failure, attempt
from mldecoder.bench.place import Place
from mldecoder.bench.work import Step

__all__ = ["Runner", "seconds_a_step", "take_turns", "warm_up"]

_LEAST_WARM_UP = 3  # steps
_WARM_UP = 3  # times as long as a repeat
_MOST_STEPS = 500


@dataclass
class Runner:
    """A head that is ready to be timed, and its times so far."""

    step: Step
    steps: int = 1  # a repeat
    seconds: list[float] = field(default_factory=list)  # of one step, one a repeat
    spent: float = 0.0
    failure: Failure | None = None


def seconds_a_step(step: Step, steps: int, place: Place) -> float:
    """Time of one of ``steps`` steps in a row; the host does not wait for the device between them."""
    place.synchronise()
    if place.cuda:
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(steps):
            step()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000 / steps
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - begin) / steps


def warm_up(step: Step, place: Place, *, repeat_seconds: float, budget: float) -> int:
    """Run a step until its kernels are chosen and its memory is there; return how many steps make a repeat."""
    first = seconds_a_step(step, 1, place)
    if first > budget / 4:  # so slow that every further step is one of the repeats
        return 1
    begin, steps, seconds = time.perf_counter(), 0, first
    while steps < _LEAST_WARM_UP or time.perf_counter() - begin < _WARM_UP * repeat_seconds:
        seconds = seconds_a_step(step, 1, place)
        steps += 1
        if time.perf_counter() - begin > budget / 4:
            break
    return max(1, min(_MOST_STEPS, round(repeat_seconds / max(seconds, 1e-9))))


def take_turns(
    runners: Sequence[Runner], place: Place, *, repeats: int, budget: float, after: Callable[[], None]
) -> None:
    """Time every runner ``repeats`` times, one after the other and round again.

    Args:
        runners: They keep their own times.
        place: Where they run.
        repeats: How often.
        budget: Seconds after which a runner that has a time is passed over.
        after: Called after every round.
    """
    for _ in range(repeats):
        for runner in runners:
            if runner.failure is None and (not runner.seconds or runner.spent < budget):
                _take_turn(runner, place)
        after()


def _take_turn(runner: Runner, place: Place) -> None:
    begin = time.perf_counter()
    if runner.steps > 1:  # untimed: the last runner left caches and clocks to itself
        _, runner.failure = attempt(runner.step, place)
    if runner.failure is None:
        seconds, runner.failure = attempt(lambda: seconds_a_step(runner.step, runner.steps, place), place)
        if seconds is not None:
            runner.seconds.append(seconds)
    runner.spent += time.perf_counter() - begin
