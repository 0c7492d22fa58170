"""The throughput table's runs: one call of the bench instead of trainings."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from mldecoder import __version__
from mldecoder.reproduce.plan import Job, Wish
from mldecoder.reproduce.results import Record, Results
from mldecoder.reproduce.table import Table
from mldecoder.reproduce.throughput import bench_settings, measured_rows

__all__ = ["bench_jobs", "run_bench"]


def bench_jobs(table: Table, wish: Wish) -> list[Job]:
    """A job a row; all of them are measured by one call."""
    settings = bench_settings(wish.budget, wish.backbone)
    overrides = tuple(f"{name}={value}" for name, value in vars(settings).items() if name != "out")
    return [
        Job(table.name, row.name, 0, wish.budget, "none", "none", "bench heads", overrides, None, (), "")
        for row in table.run_rows(wish.budget)
    ]


def run_bench(jobs: Sequence[Job], wish: Wish, results: Results, watch: Callable[[Job, str], None]) -> None:
    """Measure what is not measured yet."""
    if len(results.of([job.key for job in jobs])) == len(jobs):
        for job in jobs:
            watch(job, "done before")
        return
    from mldecoder.bench import bench_heads
    from mldecoder.bench.machine import hardware
    from mldecoder.bench.place import find_place

    settings = replace(bench_settings(wish.budget, wish.backbone), out=wish.output / "bench")
    begun = time.monotonic()
    found = measured_rows(bench_heads(settings), wish.budget)
    seconds = round(time.monotonic() - begun, 1)
    device = str(hardware(find_place(settings))["text"])
    for job in jobs:
        metrics = {name: round(value, 4) for name, value in found.get(job.row, {}).items()}
        results.add(
            Record(
                key=job.key,
                table=job.table,
                row=job.row,
                seed=0,
                budget=job.budget,
                data=job.data_name,
                recipe=job.recipe,
                overrides=job.overrides,
                init_from=None,
                metrics=metrics,
                seconds=seconds,
                version=__version__,
                device=device,
            )
        )
        watch(job, "measured")
