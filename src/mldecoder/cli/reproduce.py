"""``mldecoder reproduce``: the paper's tables, run, with the paper's figures beside ours."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console

if TYPE_CHECKING:
    from mldecoder.reproduce.api import Reproduced
    from mldecoder.reproduce.plan import Job
    from mldecoder.reproduce.table import Budget, Table

__all__ = ["reproduce"]


def reproduce(
    table: Annotated[str | None, typer.Argument(help="Which table; --list shows them.")] = None,
    data: Annotated[str | None, typer.Option(help="The data; the tiny budget needs none.")] = None,
    budget: Annotated[
        str | None, typer.Option(help="tiny (drawn pictures), small (a real part) or full (the paper's setting).")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="In place of every row's own.")] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="Backbone weights, or a folder with BACKBONE.safetensors for each.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds; rows are compared seed by seed.")] = 3,
    row: Annotated[list[str] | None, typer.Option(help="Only this row; may be repeated.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override of every run.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of runs and results; runs/reproduce.")] = None,
    parallel: Annotated[int, typer.Option(help="Runs side by side, as processes.")] = 1,
    choose: Annotated[
        bool, typer.Option("--choose", help="Score on a fifth of the training part (COCO folders).")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only count the data, and say what is missing for the full table.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Every table: needs, time, the paper's figures.")] = False,
    write: Annotated[Path | None, typer.Option(help="Also write reproduce-TABLE.{md,json,png} here.")] = None,
    commit: Annotated[str | None, typer.Option(help="The commit to write; found out by default.")] = None,
    hardware: Annotated[str | None, typer.Option(help="The hardware to write; the device by default.")] = None,
    write_docs: Annotated[
        Path | None, typer.Option(help="Write the page of all results from benchmarks/, such as docs/results.md.")
    ] = None,
    benchmarks: Annotated[Path, typer.Option(help="Where --write-docs finds tables.")] = Path("benchmarks"),
) -> None:
    """Run a table of the paper and see our figures beside the paper's.

    Finished runs are skipped and unfinished ones resumed: the same command goes on after anything that stopped it.

    Example: [bold]mldecoder reproduce heads-coco --data coco/ --init-from resnet50.safetensors[/]
    """
    console = Console(soft_wrap=True, highlight=False)
    if list_ or (table is None and write_docs is None):
        _list(console, table, seeds)
        return
    if write_docs is not None:
        from mldecoder.reproduce.docs import write_page

        write_page(benchmarks, write_docs)
        console.print(f"Written: {write_docs}", markup=False)
        return
    from mldecoder.reproduce.registry import find_table

    chosen = find_table(str(table))
    if check:
        _check(console, chosen, data, tuple(set_ or ()))
        return
    from mldecoder.reproduce import api

    def watch(job: "Job", text: str) -> None:
        console.print(f"{job.row}, seed {job.seed}: {text}", markup=False)

    done = api.reproduce(
        chosen.name,
        data,
        budget=cast("Budget | None", budget),
        backbone=backbone,
        init_from=init_from,
        seeds=seeds,
        rows=row or (),
        overrides=set_ or (),
        output=output,
        parallel=parallel,
        choose=choose,
        write=write,
        commit=commit,
        hardware=hardware,
        watch=watch,
        quiet=budget == "tiny" or data is None,
    )
    _show(console, done)


def _list(console: Console, table: str | None, seeds: int) -> None:
    from mldecoder.reproduce.listing import describe
    from mldecoder.reproduce.registry import TABLES, find_table

    for one in TABLES.values() if table is None else [find_table(table)]:
        for line in describe(one, seeds):
            console.print(line, markup=False)
        console.print()


def _check(console: Console, table: "Table", data: str | None, overrides: tuple[str, ...]) -> None:
    from mldecoder.errors import ConfigError
    from mldecoder.reproduce.readiness import check_data

    if data is None:
        raise ConfigError("Say what to check: pass --data.")
    found = check_data(table, data, overrides=overrides)
    console.print(f"{table.name} in full needs {found.source.name}: {found.source.layout}.", markup=False)
    if found.found:
        console.print(f"Found: {found.found}.", markup=False)
    for one in found.checks:
        number = "nothing" if one.found is None else f"{one.found:,}"
        console.print(f"  {one.what}: {number}; stated: {one.wanted:,} by {one.stated}: {one.verdict}.", markup=False)
    for line in found.missing:
        console.print(f"  missing: {line}", markup=False)
    if found.ready:
        console.print("Ready: the table can be run in full on it.")
        return
    console.print("Not ready for the full table. It is to be had from:")
    for place in found.source.get:
        console.print(f"  {place}", markup=False)
    raise typer.Exit(1)


def _show(console: Console, done: "Reproduced") -> None:
    from rich.table import Table as Grid

    summary = done.summary
    table = summary.table
    columns: dict[str, list[str]] = {}
    for line in summary.lines:
        found, spread, paper = line.mean(table.metric), line.spread(table.metric), line.row.paper.get(table.metric)
        if found is None and paper is None:
            continue
        difference, theirs = summary.less_base(line, table.metric), summary.paper_less_base(line, table.metric)
        cells = {
            "row": line.row.name,
            table.metric: "" if found is None else f"{found:.2f}",
            "±": "" if spread is None else f"{spread:.2f}",
            f"less {table.base} (95%)": "" if difference is None else str(difference),
            "paper": "" if paper is None else f"{paper:g}",
            "paper: less base": "" if theirs is None else f"{theirs:+.2f}",
            "ours less paper": "" if found is None or paper is None else f"{found - paper:+.2f}",
        }
        for name, cell in cells.items():
            columns.setdefault(name, []).append(cell)
    shown = {name: column for name, column in columns.items() if any(column)}
    grid = Grid(*shown)
    for row in zip(*shown.values(), strict=True):
        grid.add_row(*row)
    console.print(grid)
    ran = [line for line in summary.lines if line.values]
    scored = dict.fromkeys(name for line in ran for name in line.values if name.startswith("mAP ("))
    if scored:  # partly labelled data, scored in every plausible way
        ways = Grid("what counts", *(line.row.name for line in ran))
        for name in scored:
            means = [line.mean(name) for line in ran]
            ways.add_row(name[5:-1], *("" if value is None else f"{value:.2f}" for value in means))
        console.print(ways)
    for verdict in summary.verdicts:
        if verdict.outcome != "not run":
            console.print(f"- {verdict.claim.text}: {verdict.text}.", markup=False)
    if done.further:
        seeds = f"{done.further} further seed{'' if done.further == 1 else 's'}"
        console.print(f"Stored beyond --seeds: {seeds}, of some rows or all.", markup=False)
    console.print("Written: " + ", ".join(str(file) for file in done.files), markup=False)
