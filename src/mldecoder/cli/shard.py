"""``mldecoder shard``: any dataset packed into tar shards that train from a disk or an address."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mldecoder.cli.data import read_options

__all__ = ["shard"]

_SHOWN = 10  # broken files that are named on the screen
_EVERY = 30.0  # seconds between lines where there is no terminal


def shard(
    data: Annotated[str, typer.Argument(help="Folder, table, shards, hf:NAME or scenes.")],
    out: Annotated[str, typer.Argument(help="Folder for the shards and their index.")],
    shard_size: Annotated[float, typer.Option(help="MB of a shard.")] = 256.0,
    shard_pictures: Annotated[int | None, typer.Option(min=1, help="Pictures of a shard, at most.")] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Make pictures smaller whose shorter side is longer than this.")
    ] = None,
    shuffle: Annotated[
        bool, typer.Option("--shuffle/--no-shuffle", help="Mix the training part over its shards.")
    ] = True,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Decode every file, to leave out broken ones.")
    ] = True,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="How to read the data, such as drop_unlabelled=true.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="Format of the data, where it is not to be found out.")] = None,
) -> None:
    """Pack a dataset into tar shards in WebDataset layout, with an index.

    Files are copied byte for byte; labels, and what is unknown, go with them. Killed, the same command goes on.
    Train from the folder, or copy it anywhere: --data s3://bucket/shards, gs://..., https://...

    Example: [bold]mldecoder shard photos.csv shards/ --shard-size 512[/]
    """
    from mldecoder.data.shard_writer import PackSettings, pack

    settings = PackSettings(shard_mb=shard_size, shard_pictures=shard_pictures, size=size, shuffle=shuffle, check=check)
    with _progress() as advance:
        packed = pack(data, out, settings, format=format, options=read_options(option or []), progress=advance)
    console = Console(soft_wrap=True, highlight=False)
    counts = " + ".join(f"{count:,} {part}" for part, count in packed.counts.items())
    total = sum(its.bytes for its in packed.shards) / 1e6
    kept = f", {packed.kept} of them from before" if packed.kept else ""
    console.print(
        f"{packed.folder}: {len(packed.shards)} shards{kept}, {counts} pictures, {total:,.1f} MB.", markup=False
    )
    if packed.broken:
        console.print(f"{len(packed.broken)} broken files were left out, all named in broken.jsonl:", markup=False)
        for one in packed.broken[:_SHOWN]:
            console.print(f"- {one.name}: {one.reason}", markup=False)
    console.print(f"Train with: mldecoder train --data {Path(out)}", markup=False)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    columns = (TextColumn("Packing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    said = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("Packing", total=None)

        def advance(done: int, total: int) -> None:
            nonlocal said
            bar.update(task, completed=done, total=total)
            if not console.is_terminal and time.monotonic() - said > _EVERY:
                said = time.monotonic()
                console.print(f"Packing: {done:,}/{total:,} pictures")

        yield advance
