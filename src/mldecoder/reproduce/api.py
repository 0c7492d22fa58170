"""Run a table of the paper, as a function; the command line calls this."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mldecoder.errors import ConfigError
from mldecoder.reproduce.choose import inner_split
from mldecoder.reproduce.plan import Job, Wish, plan, slug
from mldecoder.reproduce.registry import find_table
from mldecoder.reproduce.report import Origin, command_of, write_report
from mldecoder.reproduce.results import Record, Results
from mldecoder.reproduce.settings import setting_of
from mldecoder.reproduce.sources import SOURCES
from mldecoder.reproduce.summary import Summary, summarise
from mldecoder.reproduce.table import BUDGETS, Budget, Table

__all__ = ["Reproduced", "reproduce"]

RESULTS = "results.json"


@dataclass(frozen=True)
class Reproduced:
    """A table as it stands after a call, and the files that were written.

    ``further`` is how many more seeds of its rows are stored than the call asked for.
    """

    summary: Summary
    files: tuple[Path, ...]
    further: int = 0


def reproduce(
    name: str,
    data: str | Path | None = None,
    *,
    budget: Budget | None = None,
    backbone: str | None = None,
    init_from: str | Path | None = None,
    seeds: int = 3,
    rows: Sequence[str] = (),
    overrides: Sequence[str] = (),
    output: str | Path | None = None,
    parallel: int = 1,
    choose: bool = False,
    write: str | Path | None = None,
    commit: str | None = None,
    hardware: str | None = None,
    watch: Callable[[Job, str], None] | None = None,
    quiet: bool = True,
) -> Reproduced:
    """Run the rows of a table with several seeds, and write them beside the paper's figures.

    Finished runs are skipped and unfinished ones resumed, so that the same call goes on after anything that ended it.
    The files hold what is done, also after an error or Ctrl-C.

    Args:
        name: One of :data:`mldecoder.reproduce.TABLES`.
        data: A COCO folder, class folders, or what the table needs in full; nothing in the tiny budget.
        budget: ``tiny`` (drawn pictures, seconds), ``small`` (a small real part) or ``full`` (the paper's setting);
            None is small where there is data, else tiny.
        backbone: In place of every row's own.
        init_from: A file of backbone weights, or a folder with ``BACKBONE.safetensors`` for each backbone.
        seeds: How many, from 0 on; rows are compared seed by seed. More that are stored are left out, so that the
            table is what this call makes on any machine.
        rows: Some of the rows; all by default.
        overrides: Of every run, such as ``training.epochs=3``.
        output: The folder of runs and results; ``runs/reproduce`` by default. Tables that share it share runs
            of the same settings.
        parallel: How many runs side by side, as processes.
        choose: Score on a fifth of the training part instead of the validation part (COCO folders).
        write: A folder that gets ``reproduce-NAME.md``, ``.json`` and ``.png`` too.
        commit: What to write as the commit; found out by default.
        hardware: What to write as the hardware; the device by default.
        watch: Told about every run.
        quiet: Let runs print nothing.

    Example:
        >>> done = reproduce("heads-coco", seeds=2, output="runs/heads")  # doctest: +SKIP
        >>> done.summary.line("ML-Decoder K=N").mean("mAP")  # doctest: +SKIP
        7.4
    """
    table = find_table(name)
    told = watch or (lambda _job, _text: None)
    home = Path(output) if output is not None else Path("runs") / "reproduce"
    wish = _wish(table, data, budget, home, choose=choose)
    weights = None if init_from is None else Path(init_from)
    wish = replace(
        wish, backbone=backbone, init_from=weights, seeds=seeds, rows=tuple(rows), overrides=tuple(overrides)
    )
    results = Results(home / RESULTS)
    if table.method == "bench":
        from mldecoder.reproduce.bench_runs import bench_jobs, run_bench

        wish = replace(wish, seeds=1)
        jobs, labels = bench_jobs(table, wish), 0
    else:
        labels = _num_labels(table, wish)
        jobs = plan(table, wish, labels)
    files: list[Path] = []
    try:
        if table.method == "bench":
            run_bench(jobs, wish, results, told)
        else:
            from mldecoder.reproduce.runner import run_jobs

            run_jobs(jobs, results, parallel=parallel, watch=told, quiet=quiet)
    finally:  # whatever ended it, what is done is shown
        summary, records, further = _so_far(table, wish, jobs, labels, results)
        device = ", ".join(dict.fromkeys(record.device for record in records)) or "nothing yet"
        command = " && ".join(command_of(table.name, one) for one in _told(wish, summary))
        origin = Origin(command, commit or _commit(), hardware or device)
        stem = "-".join([table.name, *([slug(backbone)] if backbone else []), *(["choice"] if choose else [])])
        files += write_report(summary, wish, origin, home, stem)
        if write is not None:
            files += write_report(summary, wish, origin, Path(write), f"reproduce-{stem}")
    return Reproduced(summary, tuple(files), further)


def _so_far(
    table: Table, wish: Wish, jobs: Sequence[Job], labels: int, results: Results
) -> tuple[Summary, list[Record], int]:
    """The table with what this call and earlier ones in the same settings have done, up to the seeds of this one.

    With its records, and how many seeds more of its rows are stored.
    """
    every = {(job.row, job.key): job for job in jobs}  # rows can come to the same settings
    if table.method == "train":
        most = max([wish.seeds, *(record.seed + 1 for record in results.read())])
        for row in table.run_rows(wish.budget):
            with suppress(ConfigError):  # of a row that was not asked for, such as weights that are not there
                planned = plan(table, replace(wish, rows=(row.name,), seeds=most), labels)
                every |= {(job.row, job.key): job for job in planned}
    stored = results.of([job.key for job in every.values()])
    further = max([0, *(record.seed + 1 - wish.seeds for record in stored.values())])
    asked = [job for job in every.values() if job.seed < wish.seeds]
    records = {key: record for key, record in stored.items() if record.seed < wish.seeds}
    return summarise(table, asked, records), list(records.values()), further


def _told(wish: Wish, summary: Summary) -> list[Wish]:
    """What calls would have to say to make the whole table: one, and further ones for rows with more seeds."""
    done = {line.row.name: len(line.of(summary.table.metric)) for line in summary.lines}
    rows = [row.name for row in summary.table.run_rows(wish.budget)]
    calls = []
    for seeds in sorted({count for count in done.values() if count}) or [1]:
        some = tuple(name for name in rows if done[name] >= seeds)
        calls.append(replace(wish, seeds=seeds, rows=() if len(some) in (0, len(rows)) else some))
    return calls


def _wish(table: Table, data: str | Path | None, budget: Budget | None, home: Path, *, choose: bool) -> Wish:
    budget = budget or ("tiny" if data is None else "small")
    if budget not in BUDGETS:
        raise ConfigError(f"--budget must be one of {', '.join(BUDGETS)}, got {budget!r}.")
    if choose and budget == "tiny":
        raise ConfigError("--choose needs --data: there is nothing to choose on drawn pictures.")
    if table.method == "bench":
        return Wish("none", budget, home)
    if budget == "tiny":
        if data is not None:
            raise ConfigError("The tiny budget runs on drawn pictures. Leave --data out, or take --budget small.")
        return Wish(str(_drawn(table, home)), budget, home)
    if data is None:
        raise ConfigError(f"The {budget} budget needs --data: {_need(table, budget)}.")
    if choose:
        inner = inner_split(Path(data).expanduser(), home / "inner" / Path(data).name)
        return Wish(str(inner), budget, home, choose=True)
    return Wish(str(data), budget, home)


def _need(table: Table, budget: Budget) -> str:
    if budget == "full":
        source = SOURCES[table.data]
        return f"{source.name}, {source.layout}"
    return {
        "multi-label": "a COCO folder, or any pictures with several labels",
        "zero-shot": "a COCO folder with the 80 classes",
        "single-label": "class folders of pictures",
    }[table.kind]


def _drawn(table: Table, home: Path) -> str | Path:
    if table.kind != "single-label":
        return "scenes"
    from mldecoder.reproduce.tiny import draw_folders

    return draw_folders(home / "drawn")


def _num_labels(table: Table, wish: Wish) -> int:
    """How many labels the data has, where a row asks for it."""
    texts = [text for row in table.rows for text in (*row.overrides, *row.at.get(wish.budget, ()))]
    if not any("{N" in text for text in texts):
        return 0
    from mldecoder.data.detect import open_dataset
    from mldecoder.recipes import load_recipe

    setting = setting_of(table, wish.budget)
    own = [text for text in (*setting.overrides, *wish.overrides) if text.startswith("data.")]
    return len(open_dataset(wish.data, options=load_recipe(setting.recipe, own).data.options).labels)


def _commit() -> str:
    from mldecoder.bench.machine import commit

    return commit() or "unknown"
