"""``mldecoder data``: what a dataset holds, and what is wrong with it, before anybody trains on it."""

import json as json_
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from mldecoder.data.dataset import Dataset
    from mldecoder.data.summary import PartSummary, Summary

__all__ = ["data", "read_options"]

_BAR = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def data(
    path: Annotated[str, typer.Argument(help="Folder, table, shards, hf:NAME or scenes.")],
    option: Annotated[
        list[str] | None, typer.Option("--option", help="How to read it, such as drop_unlabelled=true.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="Format, where it is not to be found out.")] = None,
    rows: Annotated[int, typer.Option(min=2, help="Labels in the table; of more the ends are shown.")] = 20,
    plot: Annotated[Path | None, typer.Option(help="Write the class balance as a picture (.png, .svg, .pdf).")] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Read every file, to find broken ones.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, with every label and file, instead.")] = False,
) -> None:
    """Say what a dataset holds: pictures, labels, broken files, class balance, pictures in both parts.

    Example: [bold]mldecoder data photos.csv --plot balance.png[/]
    """
    from mldecoder.data.balance import check_plot_file, plot_balance
    from mldecoder.data.detect import open_dataset

    if plot is not None:
        check_plot_file(plot)
    dataset = open_dataset(path, format=format, options=read_options(option or []))
    console = Console(soft_wrap=True, highlight=False)
    if not json:
        console.print(f"Data: {dataset.description}.", markup=False)
        for note in dataset.notes:
            console.print(f"Note: {note}", markup=False)
    summary = _summarised(dataset, check)
    if plot is not None:
        plot_balance(summary, plot)
    if json:
        console.print(json_.dumps(_as_json(summary), indent=2, ensure_ascii=False), markup=False)
        return
    console.print(_parts(summary))
    console.print(_balance(summary, rows))
    if plot is not None:
        console.print(f"Class balance drawn in {plot}.", markup=False)
    problems = summary.problems()
    console.print("To look at (--json names every file):" if problems else _all_well(check))
    for line in problems:
        console.print(f"- {line}", markup=False)


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """What ``--option key=value`` says, values as YAML reads them."""
    import yaml

    from mldecoder.errors import ConfigError

    options: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--option takes key=value, such as drop_unlabelled=true, got {word!r}.")
        try:
            options[key.strip()] = yaml.safe_load(text)
        except yaml.YAMLError:  # a separator such as | or * means something else to YAML
            options[key.strip()] = text
    return options


def _summarised(dataset: "Dataset", check: bool) -> "Summary":
    """Count and read, with a bar on a terminal."""
    from mldecoder.data.summary import summarise

    console = Console(stderr=True)
    columns = (TextColumn("Reading files"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (check and console.is_terminal)) as bar:
        task = bar.add_task("Reading files", total=None)
        return summarise(
            dataset,
            check_files=check,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


def _parts(summary: "Summary") -> Table:
    table = Table("", *(part.name for part in summary.parts), title=f"{len(summary.labels):,} labels, {summary.task}")
    lines = [
        ("pictures", [f"{part.images:,}" for part in summary.parts]),
        ("labels a picture", [f"{part.labels_per_image:.2f}" for part in summary.parts]),
        ("most labels of a picture", [f"{part.most_labels:,}" for part in summary.parts]),
        ("pictures without label", [f"{part.unlabelled:,}" for part in summary.parts]),
        ("unknown targets", [f"{part.unknown:.1%}" for part in summary.parts]),
        ("labels that never occur", [f"{len(part.without_positives):,}" for part in summary.parts]),
        ("files read", [f"{part.checked:,}" for part in summary.parts]),
        ("missing files", [_if_read(part, len(part.missing)) for part in summary.parts]),
        ("broken files", [_if_read(part, len(part.broken)) for part in summary.parts]),
    ]
    for name, values in lines:
        table.add_row(name, *values)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _if_read(part: "PartSummary", count: int) -> str:
    return f"{count:,}" if part.checked else "not read"


def _balance(summary: "Summary", rows: int) -> Table:
    """How often each label occurs, most frequent first; of many labels the two ends."""
    first = summary.parts[0]
    order = sorted(range(len(summary.labels)), key=lambda i: (-int(first.positives[i]), i))
    most = max(1, int(first.positives.max(initial=0)))
    table = Table("label", *(part.name for part in summary.parts), "of pictures", "", title="Class balance")
    for column in table.columns[1 : len(summary.parts) + 2]:
        column.justify = "right"
    rare = rows // 4 or 1
    left_out = len(order) - rows
    for place, i in enumerate(order):
        if left_out > 0 and rows - rare <= place < len(order) - rare:
            if place == rows - rare:
                table.add_row(f"... {left_out:,} more", *[""] * (len(summary.parts) + 2))
            continue
        count = int(first.positives[i])
        counts = [f"{int(part.positives[i]):,}" for part in summary.parts]
        share = f"{count / max(1, first.images):.1%}"
        table.add_row(escape(summary.labels[i]), *counts, share, bar(count / most))
    return table


def bar(share: float, width: int = _BAR) -> str:
    """A bar of block characters, exact to an eighth of one; whatever is above 0 can be seen.

    Example:
        >>> bar(0.5, width=3)
        '█▌'
    """
    eighths = max(round(share * width * 8), int(share > 0))
    return (_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _all_well(check: bool) -> str:
    return "Nothing to complain about." if check else "Nothing to complain about; the files were not read."


def _as_json(summary: "Summary") -> dict[str, Any]:
    return {
        "name": summary.name,
        "format": summary.format,
        "description": summary.description,
        "notes": list(summary.notes),
        "task": summary.task,
        "labels": list(summary.labels),
        "parts": [_part_as_json(part, summary.labels) for part in summary.parts],
        "same_file": list(summary.same_file),
        "same_content": [{"train": ours, "val": theirs} for ours, theirs in summary.same_content],
        "problems": summary.problems(),
    }


def _part_as_json(part: "PartSummary", labels: Sequence[str]) -> dict[str, Any]:
    return {
        "name": part.name,
        "images": part.images,
        "labels_per_image": part.labels_per_image,
        "most_labels": part.most_labels,
        "unlabelled": part.unlabelled,
        "unknown": part.unknown,
        "positives": dict(zip(labels, part.positives.tolist(), strict=True)),
        "negatives": dict(zip(labels, part.negatives.tolist(), strict=True)),
        "without_positives": list(part.without_positives),
        "checked": part.checked,
        "missing": list(part.missing),
        "broken": [{"name": name, "reason": reason} for name, reason in part.broken],
    }
