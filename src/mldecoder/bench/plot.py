"""Cost against the number of classes, as a picture that can be printed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mldecoder.bench.rows import Row
from mldecoder.bench.settings import MODES, Mode

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot"]

_COLOURS = ("#555555", "#d95f02", "#1b6ca8", "#7a3e9d", "#2e8b57", "#b8860b")  # tell apart in grey as well
_MARKERS = ("s", "^", "o", "D", "v", "P")
_NAMES = {"gap": "GAP", "transformer-decoder": "transformer-decoder", "ml-decoder": "ML-Decoder"}
_LEGEND = 110  # characters in a line of the legend
_TITLES: dict[Mode, str] = {"train": "training", "infer": "inference"}


def plot(rows: Sequence[Row], title: str, path: Path) -> None:
    """Draw microseconds an image over the classes, one line a head, training and inference side by side.

    Args:
        rows: What ``bench_heads`` returns.
        title: A line above the picture.
        path: Where to write; its ending decides the kind of file.
    """
    from matplotlib.figure import Figure

    modes = [mode for mode in MODES if any(row.mode == mode for row in rows)]
    figure = Figure(figsize=(1.2 + 4.4 * len(modes), 4.6), layout="constrained")
    panels: Any = figure.subplots(1, len(modes), sharey=True, squeeze=False)[0]
    lines = _lines(rows)
    classes = [row.classes for row in rows]
    numbers = _numbers([(head, queries) for head, queries, _ in lines])
    for axes, mode in zip(panels, modes, strict=True):
        axes.set(title=_TITLES[mode], xlabel="classes")
        for head, queries, compiled in lines:
            number = numbers[head, queries] % len(_COLOURS)
            points = [row for row in lines[head, queries, compiled] if row.mode == mode]
            _draw(axes, points, _label(head, queries, compiled), number, compiled=compiled)
        axes.grid(which="major", color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.1, y=0.1)
        axes.set(xscale="log", yscale="log", xlim=(min(classes) / 2, max(classes) * 2))
    panels[0].set_ylabel("microseconds an image")
    handles, labels = panels[0].get_legend_handles_labels()
    columns = max(1, min(4, len(labels), _LEGEND // (8 + max(map(len, labels)))))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    figure.suptitle(title, fontsize=9, parse_math=False, wrap=True)
    figure.savefig(path, dpi=200)


def _lines(rows: Sequence[Row]) -> dict[tuple[str, int | None, bool], list[Row]]:
    """The rows of each line; a head that is measured with several numbers of queries has a line for each."""
    most = {head: _queries(rows, head) for head in dict.fromkeys(row.head for row in rows)}
    lines: dict[tuple[str, int | None, bool], list[Row]] = {}
    for row in rows:
        queries = row.queries if row.head != "transformer-decoder" and len(most[row.head]) > 1 else None
        lines.setdefault((row.head, queries, row.compiled), []).append(row)
    return lines


def _queries(rows: Sequence[Row], head: str) -> set[int | None]:
    """Numbers of queries that are set apart from the classes: fewer queries than wanted is no line of its own."""
    return {row.queries for row in rows if row.head == head and row.queries != row.classes}


def _numbers(heads: Sequence[tuple[str, int | None]]) -> dict[tuple[str, int | None], int]:
    """The colour of each line: our heads have the same in every picture, what comes on top takes the next."""
    numbers: dict[tuple[str, int | None], int] = {}
    fixed = {name: number for number, name in enumerate(_NAMES)}
    for head in dict.fromkeys(heads):
        taken = set(numbers.values())
        own = fixed.get(head[0], len(fixed))
        numbers[head] = own if own not in taken else next(n for n in range(len(fixed), 1000) if n not in taken)
    return numbers


def _label(head: str, queries: int | None, compiled: bool) -> str:
    name = _NAMES.get(head, head.rpartition(":")[2])
    return name + (f", {queries} queries" if queries else "") + (", compiled" if compiled else "")


def _draw(axes: "Axes", rows: Sequence[Row], label: str, number: int, *, compiled: bool) -> None:
    """A line with its quartiles; where the head runs out of memory, the line ends with the word."""
    points = sorted((row.classes, row.us_per_image, i) for i, row in enumerate(rows) if row.us_per_image is not None)
    colour, marker = _COLOURS[number], _MARKERS[number]
    fill, line = ("none", "--") if compiled else ("full", "-")
    x, y = [point[0] for point in points], [point[1] for point in points]
    axes.plot(x, y, label=label, color=colour, linestyle=line, linewidth=1.8, marker=marker, ms=5.5, fillstyle=fill)
    for classes, _, i in points:
        axes.vlines(classes, rows[i].us_q1 or 0, rows[i].us_q3 or 0, color=colour, linewidth=4, alpha=0.35)
    lost = [row.classes for row in rows if row.status == "OOM"]
    if lost and points:
        where = f"OOM at {min(lost):,}"
        axes.annotate(where, (x[-1], y[-1]), (0, 8), textcoords="offset points", color=colour, ha="center", fontsize=8)
