"""The plot of a table: every seed of every row, and the differences to the base row beside the paper's.

Figures of the paper are curves instead, one a head.
"""

from pathlib import Path
from typing import Any

from mldecoder.reproduce.summary import Line, Summary

__all__ = ["plot"]

_OURS, _PAPER = "#1f5f99", "#c4602d"
_STYLES = ((_PAPER, "s"), (_OURS, "o"))  # of curves, in the order of the heads


def plot(summary: Summary, path: Path, where: str) -> None:
    """Draw the rows that were run, and say where."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    lines = [line for line in summary.lines if line.of(summary.table.metric)]
    (_draw_curves if summary.table.against else _draw_rows)(figure, summary, lines)
    figure.suptitle(f"{summary.table.title} ({where})", fontsize=10, x=0.01, ha="left")
    figure.savefig(path, dpi=130)


def _draw_rows(figure: Any, summary: Summary, lines: list[Line]) -> None:  # noqa: ANN401 - matplotlib has no types
    """A line a row; the right half only where there are differences to draw."""
    metric = summary.table.metric
    compared = any(_differs(summary, line, metric) for line in lines)
    figure.set_size_inches(10 if compared else 6, 1.5 + 0.45 * len(lines))
    axes = figure.subplots(1, 2 if compared else 1, sharey=True, squeeze=False)[0]
    _draw_values(axes[0], lines, metric)
    if compared:
        _draw_differences(axes[1], summary, lines, metric)
    axes[0].set_yticks(range(len(lines)), [line.row.name for line in lines])
    axes[0].set_ylim(len(lines) - 0.5, -0.5)
    for axis in axes:
        axis.grid(axis="x", color="#dddddd", linewidth=0.7)
        axis.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        axis.tick_params(left=False)


def _draw_curves(figure: Any, summary: Summary, lines: list[Line]) -> None:  # noqa: ANN401
    """A curve a head through its backbones: what is compared over what it costs, with every seed."""
    metric, against = summary.table.metric, summary.table.against
    figure.set_size_inches(7, 4.5)
    axis = figure.subplots()
    heads = dict.fromkeys(line.row.name.rpartition(", ")[2] for line in lines)
    for head, (color, marker) in zip(heads, _STYLES, strict=False):
        own = [line for line in lines if line.row.name.endswith(f", {head}") and line.of(against)]
        points = sorted((line.mean(against), line.mean(metric), line.row.name.rpartition(", ")[0]) for line in own)
        axis.plot([x for x, _, _ in points], [y for _, y, _ in points], marker=marker, color=color, label=head)
        for line in own:
            values = line.of(metric)
            axis.plot([line.mean(against)] * len(values), values, "_", color=color, markersize=9, alpha=0.6)
        for x, y, backbone in points:
            axis.annotate(backbone, (x, y), textcoords="offset points", xytext=(7, -4), fontsize=8, color=color)
    axis.set_xlabel(against)
    axis.set_ylabel(f"{metric}: mean, and seeds")
    axis.margins(x=0.12)
    axis.grid(color="#dddddd", linewidth=0.7)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.legend(frameon=False, fontsize=9, loc="best")


def _draw_values(axis: Any, lines: list[Line], metric: str) -> None:  # noqa: ANN401 - matplotlib has no types
    for place, line in enumerate(lines):
        values = line.of(metric)
        axis.plot(values, [place] * len(values), "o", color=_OURS, markersize=4, alpha=0.5)
        axis.plot([line.mean(metric)], [place], "|", color=_OURS, markersize=16, markeredgewidth=2)
    axis.set_xlabel(f"{metric}: seeds, and their mean")


def _draw_differences(axis: Any, summary: Summary, lines: list[Line], metric: str) -> None:  # noqa: ANN401
    axis.axvline(0, color="#888888", linewidth=1)
    ours = paper = False
    for place, line in enumerate(lines):
        found, theirs = summary.less_base(line, metric), summary.paper_less_base(line, metric)
        if found is not None:
            wide = found.count > 1
            low, high = (found.mean - found.low, found.high - found.mean) if wide else (0.0, 0.0)
            label = None if ours else "ours, 95%"
            bars = [[low], [high]]
            axis.errorbar([found.mean], [place - 0.1], xerr=bars, fmt="o", color=_OURS, capsize=3, label=label)
            ours = True
        if theirs is not None:
            label = None if paper else "paper"
            axis.plot([theirs], [place + 0.15], "D", color=_PAPER, markersize=5, fillstyle="none", label=label)
            paper = True
    axis.set_xlabel(f"{metric}, less {summary.table.base}")
    if ours or paper:
        axis.legend(frameon=False, fontsize=8, loc="best")


def _differs(summary: Summary, line: Line, metric: str) -> bool:
    return summary.less_base(line, metric) is not None
