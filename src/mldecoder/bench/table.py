"""Rows as tables: for the terminal and in Markdown, with the same columns."""

from collections.abc import Callable, Sequence
from textwrap import wrap

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from mldecoder.bench.rows import Row
from mldecoder.bench.settings import Mode
from mldecoder.bench.sizes import show_bytes

__all__ = ["details", "markdown", "terminal"]

_HEADER = 8  # characters of a line of a header
_TITLES: dict[Mode, str] = {"train": "Training", "infer": "Inference"}


def terminal(rows: Sequence[Row], mode: Mode) -> list[Table]:
    """The rows of one mode as two tables of rich, narrow enough for a terminal: speed, and what it takes."""
    rows = [row for row in rows if row.mode == mode]
    columns = [name for name in _columns(rows) if name != "quartiles"]
    if all(len({row.queries for row in _alike(rows, row)}) == 1 for row in rows):
        speed = [name for name in columns if name in _KEY[:3] + _SPEED]
    else:
        speed = [name for name in columns if name in _KEY + _SPEED]
    rest = [name for name in columns if name not in _SPEED]
    return [
        _table(rows, f"{_TITLES[mode]}: speed", speed),
        _table(rows, f"{_TITLES[mode]}: batch, memory, multiply-adds", rest),
    ]


def _alike(rows: Sequence[Row], row: Row) -> list[Row]:
    return [r for r in rows if (r.head, r.classes, r.compiled) == (row.head, row.classes, row.compiled)]


def _table(rows: Sequence[Row], title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    for number, name in enumerate(columns):
        cells = [_COLUMNS[name](row) for row in rows]
        widest = max((len(cell) for cell in cells if not cell.startswith("error")), default=0)
        header = "\n".join(wrap(name, _HEADER, break_long_words=False, break_on_hyphens=False))
        table.add_column(header, justify="right" if number else "left", min_width=max(widest, 6), overflow="fold")
    for row in rows:
        table.add_row(*(escape(_COLUMNS[name](row)) for name in columns))
    return table


def markdown(rows: Sequence[Row], mode: Mode) -> str:
    """The rows of one mode as a Markdown table."""
    rows = [row for row in rows if row.mode == mode]
    columns = _columns(rows)
    lines = [
        f"## {_TITLES[mode]}",
        "",
        "| " + " | ".join(columns) + " |",
        "|---|" + "--:|" * (len(columns) - 1),
    ]
    lines += ["| " + " | ".join(_COLUMNS[name](row).replace("|", "\\|") for name in columns) + " |" for row in rows]
    remarks = [f"- {line}" for line in details(rows, mode)]
    return "\n".join([*lines, "", *remarks] if remarks else lines)


def details(rows: Sequence[Row], mode: Mode) -> list[str]:
    """What is to be said about single rows of one mode."""
    return [f"{row}: {row.detail}" for row in rows if row.mode == mode and row.detail]


def _columns(rows: Sequence[Row]) -> list[str]:
    """The columns that say something about these rows."""
    return [name for name, value in _COLUMNS.items() if name in _ALWAYS or any(value(row) for row in rows)]


def _name(row: Row) -> str:
    return row.head.rpartition(":")[2]  # of a peer the class


def _speed(row: Row) -> str:
    if row.images_per_second is None:
        return "" if row.status == "ok" else row.status
    return f"{row.images_per_second:,.0f}" if row.images_per_second >= 100 else f"{row.images_per_second:.3g}"


def _time(us: float | None) -> str:
    return "" if us is None else f"{us:,.{2 if us < 100 else 0}f}"


def _quartiles(row: Row) -> str:
    return f"{_time(row.us_q1)}–{_time(row.us_q3)}" if row.us_q1 is not None else ""


def _spread(row: Row) -> str:
    """What lies between the quartiles, as a part of the median."""
    if row.us_per_image is None or row.us_q1 is None or row.us_q3 is None or row.repeats < 2:
        return ""
    return f"{(row.us_q3 - row.us_q1) / row.us_per_image:.1%}"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def _bytes(count: int | None) -> str:
    return "" if count is None else show_bytes(count)


def _count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _largest(row: Row) -> str:
    if row.largest_batch is None:
        return ""
    more = "" if row.largest_batch_limit == "OOM" else "≥"
    share = row.largest_batch_ratio_to_gap
    return f"{more}{row.largest_batch:,}" + (f" ({share:.0%})" if share is not None else "")


def _giga(count: float | None) -> str:
    return "" if count is None else f"{count / 1e9:.3g}" if count < 1e12 else f"{count / 1e9:,.0f}"


_ALWAYS = ("head", "classes", "img/s", "us/image")
_KEY = ("head", "compiled", "classes", "queries")
_SPEED = ("img/s", "us/image", "spread", "quartiles", "time / GAP", "paper: img/s", "paper: time / GAP")
_COLUMNS: dict[str, Callable[[Row], str]] = {
    "head": _name,
    "compiled": lambda row: "yes" if row.compiled else "",
    "classes": lambda row: f"{row.classes:,}",
    "queries": lambda row: _count(row.queries),
    "batch": lambda row: _count(row.batch),
    "img/s": _speed,
    "us/image": lambda row: _time(row.us_per_image),
    "spread": _spread,
    "quartiles": _quartiles,
    "time / GAP": lambda row: _times(row.ratio_to_gap),
    "weights": lambda row: _bytes(row.weights_bytes),
    "peak memory": lambda row: _bytes(row.peak_bytes),
    "beyond weights": lambda row: _bytes(row.beyond_weights_bytes),
    "peak / GAP": lambda row: _times(row.peak_ratio_to_gap),
    "largest batch (of GAP's)": _largest,
    "GMAC": lambda row: _giga(row.multiply_adds),
    "paper: img/s": lambda row: _count(row.paper_images_per_second),
    "paper: time / GAP": lambda row: _times(row.paper_ratio_to_gap),
    "paper: largest batch": lambda row: _count(row.paper_largest_batch),
    "paper: GMAC, network": lambda row: _giga(row.paper_multiply_adds),
}
