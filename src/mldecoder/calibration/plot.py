"""The reliability plot: what was said against how often it was so."""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mldecoder.calibration.reliability import Reliability

__all__ = ["draw_reliability"]

_BLUE, _ORANGE, _GREY = "#2563eb", "#d97706", "#9ca3af"


def draw_reliability(path: Path, before: Reliability, after: Reliability, *, entries: str) -> None:
    """Draw both curves, and below them how many entries lie in each bin.

    Args:
        path: The PNG file.
        before: Of the raw scores.
        after: Of the calibrated ones.
        entries: What is counted, such as "entries (picture x label)".
    """
    figure = Figure(figsize=(6.4, 7.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, height_ratios=[3, 1], sharex=True)
    upper.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=1.2, label="honest")
    for name, values, colour, marker in (("before", before, _ORANGE, "s"), ("after", after, _BLUE, "o")):
        there = values.count > 0
        upper.plot(
            values.confidence[there].numpy(),
            values.frequency[there].numpy(),
            color=colour,
            marker=marker,
            markersize=6,
            linewidth=1.8,
            clip_on=False,
            label=f"{name}: ECE {100 * values.error:.1f} %",
        )
    upper.set(xlim=(0, 1), ylim=(0, 1), ylabel="how often it was so")
    upper.set_title("Reliability, on pictures that were not fitted on", loc="left", fontsize=11)
    upper.legend(loc="upper left", frameon=False)
    bins = len(before.count)
    left = np.arange(bins) / bins
    width = 1 / bins
    for shift, values, colour in ((0.06, before, _ORANGE), (0.5, after, _BLUE)):
        lower.bar(left + shift * width, values.count.numpy(), width=0.44 * width, align="edge", color=colour)
    lower.set_yscale("log")
    lower.set(xlabel="score", ylabel=entries)
    for axes in (upper, lower):
        axes.grid(color="#e5e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    part = path.with_name(f".{path.name}.part")
    figure.savefig(part, format="png")
    part.replace(path)
