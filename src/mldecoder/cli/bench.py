"""``mldecoder bench``: what the heads cost on this machine."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from mldecoder.bench.report import Report
    from mldecoder.bench.settings import BenchSettings, Compile, Device, Mode, Precision

__all__ = ["bench"]

_FILE_WIDTH = 120  # of a table that goes into a file or a pipe

bench = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)


@bench.callback()
def _verbs() -> None:
    """Measure speed and memory."""


@bench.command()
def heads(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    classes: Annotated[str, typer.Option(help="Numbers of classes.")] = "100,1000,5000,10000,100000",
    queries: Annotated[str, typer.Option(help="Numbers of queries of ML-Decoder and peers.")] = "100",
    heads: Annotated[str, typer.Option(help="Heads to measure.")] = "gap,transformer-decoder,ml-decoder",
    peer: Annotated[
        list[str] | None, typer.Option(help="A further head, module:Class, built with (num_classes, in_features).")
    ] = None,
    mode: Annotated[str, typer.Option(help="train, infer, or both with a comma.")] = "train,infer",
    tokens: Annotated[str, typer.Option(help="Feature map, for heads alone.")] = "7x7",
    features: Annotated[int, typer.Option(help="Channels of the feature map, for heads alone.")] = 2048,
    width: Annotated[int, typer.Option(help="Width of the decoders.")] = 768,
    ff_width: Annotated[int, typer.Option(help="Feed-forward width of the decoders.")] = 2048,
    batch: Annotated[str, typer.Option(help="Images a step; auto is 80% of the largest that fits.")] = "256",
    precision: Annotated[str, typer.Option(help="bf16, fp16 or fp32; auto is bf16 on a GPU, else fp32.")] = "auto",
    autocast: Annotated[bool, typer.Option("--autocast", help="Weights in float32, operations by autocast.")] = False,
    channels_last: Annotated[
        bool, typer.Option("--channels-last/--channels-first", help="Memory layout of the input.")
    ] = True,
    memory_cap: Annotated[str | None, typer.Option(help="As if the GPU had this much, such as 16GiB.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Measure networks: this backbone with each head.")] = None,
    size: Annotated[int, typer.Option(help="Height and width of the pictures, with a backbone.")] = 224,
    compile: Annotated[str, typer.Option(help="torch.compile: yes, no or both.")] = "no",
    graph: Annotated[
        bool, typer.Option("--graph", help="Replay steps as CUDA graphs: the device's time without the host's.")
    ] = False,
    repeats: Annotated[int, typer.Option(help="Timings a cell; the median counts.")] = 10,
    budget: Annotated[float, typer.Option(help="Seconds after which a cell takes no further repeats.")] = 60.0,
    out: Annotated[Path | None, typer.Option(help="Folder for heads.json, heads.md and heads.png.")] = None,
) -> None:
    """Measure the heads against each other: the paper's throughput table on this machine.

    Time of training and inference, memory, the largest batch, multiply-adds; with the paper's figures beside them.

    Example: [bold]mldecoder bench heads --classes 100,1000 --batch 8 --out bench/[/]
    """
    from mldecoder.bench.settings import BenchSettings
    from mldecoder.bench.sizes import parse_batch, parse_bytes, parse_grid, parse_numbers, words

    settings = BenchSettings(
        device=cast("Device", device),
        classes=parse_numbers(classes, "--classes"),
        queries=parse_numbers(queries, "--queries"),
        heads=words(heads),
        peers=tuple(peer or ()),
        modes=cast("tuple[Mode, ...]", words(mode)),
        tokens=parse_grid(tokens),
        features=features,
        width=width,
        ff_width=ff_width,
        batch=parse_batch(batch),
        precision=cast("Precision", precision),
        autocast=autocast,
        channels_last=channels_last,
        memory_cap=None if memory_cap is None else parse_bytes(memory_cap),
        backbone=backbone,
        size=size,
        compile=cast("Compile", compile),
        graph=graph,
        repeats=repeats,
        budget=budget,
        out=out,
    )
    _run(settings)


def _run(settings: "BenchSettings") -> None:
    """Measure with a bar on a terminal; the table is printed also when somebody stops it."""
    import shlex
    import sys

    from mldecoder.bench import bench_heads

    sys.path.insert(0, str(Path.cwd()))  # a peer may lie in the folder one works in
    said = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    latest: Report | None = None
    rows = 0
    with Progress(*columns, console=said, transient=True, disable=not said.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def watch(report: "Report", text: str) -> None:
            nonlocal latest, rows
            if not said.is_terminal and latest is not None and len(report.rows) > rows:
                said.print(f"{len(report.rows)}/{report.total} {text}", markup=False, soft_wrap=True)
            latest, rows = report, len(report.rows)
            bar.update(task, description=text, completed=len(report.rows), total=report.total)

        try:
            bench_heads(settings, command=shlex.join(["mldecoder", *sys.argv[1:]]), watch=watch)
        finally:
            bar.stop()
            if latest is not None:
                _show(latest)


def _show(report: "Report") -> None:
    from mldecoder.bench.table import details, terminal

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _FILE_WIDTH
    console.print(f"Cost of {report.title}", markup=False, soft_wrap=True)
    for mode in report.settings.modes:
        if any(row.mode == mode for row in report.rows):
            console.print(*terminal(report.rows, mode))
            for line in details(report.rows, mode):
                console.print(f"- {line}", markup=False, soft_wrap=True)
    if not report.finished:
        console.print("Stopped before the end.")
    for note in report.notes:
        console.print(f"- {note}", markup=False, soft_wrap=True)
    out = report.settings.out
    if out is not None:
        files = ", ".join(name for name in ("heads.json", "heads.md", "heads.png") if (out / name).is_file())
        console.print(f"Written to {out}: {files}.", markup=False, soft_wrap=True)
