"""The whole table: every head at every number of classes, in every mode."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from mldecoder.bench.cells import Cell, Ready, Workshop
from mldecoder.bench.clock import Runner, take_turns
from mldecoder.bench.contenders import contenders, find_peer
from mldecoder.bench.failure import Failure, attempt
from mldecoder.bench.place import find_place, kernel_trials, recompiling
from mldecoder.bench.report import Report
from mldecoder.bench.rows import OOM, Row, beside_paper, timed
from mldecoder.bench.settings import BenchSettings

__all__ = ["Watch", "bench_heads"]

Watch = Callable[[Report, str], None]


def bench_heads(settings: BenchSettings, *, command: str | None = None, watch: Watch | None = None) -> list[Row]:
    """Measure heads against each other, and write the tables if ``settings.out`` names a folder.

    A cell that runs out of memory or fails is a row that says so. After Ctrl-C the files hold what was measured.

    Args:
        settings: What to measure.
        command: The command to put into the files; the settings themselves if there is none.
        watch: Called before and after every cell, with the report so far and a line about what happens.

    Example:
        >>> settings = BenchSettings(device="cpu", classes=(10,), heads=("gap",), features=8, batch=2, repeats=1)
        >>> [row.mode for row in bench_heads(settings)]
        ['train', 'infer']
    """
    for path in settings.peers:
        find_peer(path)  # a wrong name is told before anything is measured
    place = find_place(settings)
    shop = Workshop(settings, place)
    table = [(n, mode) for n in settings.classes for mode in settings.modes]
    groups = [
        [
            Cell(contender, mode, compiled)
            for contender in contenders(settings, n, shop.in_features)
            for compiled in settings.compile_choices
        ]
        for n, mode in table
    ]
    report = Report(settings, place, total=sum(len(group) for group in groups), command=command)
    sweep = _Sweep(shop, report, watch or (lambda _report, _text: None))
    compiling = settings.compile != "no"
    try:
        with kernel_trials(True), recompiling(compiling):
            for group in groups:
                sweep.measure(group)
                if compiling:
                    torch.compiler.reset()
        report.finished = True
    finally:
        report.write()
    return report.rows


class _Sweep:
    """Measures groups of cells that are compared with each other."""

    def __init__(self, shop: Workshop, report: Report, watch: Watch) -> None:
        self.shop = shop
        self.report = report
        self.watch = watch

    def measure(self, group: Sequence[Cell]) -> None:
        """Fill in the rows of cells with the same classes and mode: largest batches first, then turn by turn."""
        begun = []
        for cell in group:
            self.watch(self.report, str(cell))
            row = beside_paper(self.shop.begin(cell), self.shop.settings)
            row, failure = self.shop.find_batch(cell, row)
            failure = failure or self.shop.refusal(cell, row.batch or 1)
            if failure is None:
                begun.append((cell, row))
            else:
                self._emit(row, failure)
        for cell, row in self._together(begun):  # what found no room beside the others is measured alone
            list(self._together([(cell, replace(row, detail="not in turn with the others: no room beside them"))]))

    def _together(self, cells: Sequence[tuple[Cell, Row]]) -> list[tuple[Cell, Row]]:
        """Time cells in turns and emit their rows; return those that had no room beside the others."""
        shop, aside = self.shop, []
        runners: list[tuple[Cell, Row, Runner]] = []
        held = 0
        for cell, row in cells:
            self.watch(self.report, f"{cell}: warming up")
            if runners and shop.refusal(cell, row.batch or 1, held=held):
                aside.append((cell, row))
                continue
            ready, failure = self._set_up(cell, row)
            if ready is not None:
                runners.append((cell, ready.row, Runner(ready.step, ready.steps)))
                held += shop.needed(cell, row.batch or 1) if not shop.place.cuda else 0
            elif failure is not None and failure.status == OOM and runners and shop.settings.memory_cap is None:
                aside.append((cell, row))
            elif failure is not None:
                self._emit(row, failure)
            del ready
        try:
            self._time(runners)
        finally:  # also after Ctrl-C, with the repeats that were made
            for cell, row, runner in runners:
                if runner.failure is not None and runner.failure.status == OOM and len(runners) > 1:
                    aside.append((cell, replace(row, peak_bytes=None, beyond_weights_bytes=None)))
                elif runner.seconds or runner.failure is not None:
                    self._emit(self._timed(row, runner), runner.failure)
            runners.clear()
            shop.place.release()
        return aside

    def _set_up(self, cell: Cell, row: Row) -> tuple[Ready | None, Failure | None]:
        return attempt(lambda: self.shop.set_up(cell, row), self.shop.place)

    def _time(self, runners: Sequence[tuple[Cell, Row, Runner]]) -> None:
        if not runners:
            return
        settings, cell = self.shop.settings, runners[0][0]
        what = f"{cell.contender.classes:,} classes, {cell.mode}: {len(runners)} heads in turns"

        def after() -> None:
            self.watch(self.report, f"{what}, {max(len(r.seconds) for _, _, r in runners)} of {settings.repeats}")

        just = [runner for _, _, runner in runners]
        take_turns(just, self.shop.place, repeats=settings.repeats, budget=settings.budget, after=after)

    def _timed(self, row: Row, runner: Runner) -> Row:
        row = timed(row, runner.seconds, runner.steps)
        if row.repeats < self.shop.settings.repeats:
            seconds = f"{row.repeats} of {self.shop.settings.repeats} repeats in {runner.spent:.0f} s"
            row = replace(row, detail="; ".join(filter(None, [row.detail, seconds])))
        return row

    def _emit(self, row: Row, failure: Failure | None = None) -> None:
        if failure is not None:
            row = replace(row, status=failure.status, detail=failure.detail)
        self.report.add(row)
        self.watch(self.report, f"{row}: {row.status}")
