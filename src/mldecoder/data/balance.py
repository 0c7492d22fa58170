"""How often each label occurs, as a picture file."""

from pathlib import Path

import numpy as np

from mldecoder.data.summary import Summary
from mldecoder.errors import ConfigError

__all__ = ["check_plot_file", "plot_balance"]

_NAMED = 60
"""Up to this many labels each has its own bar and name; beyond, counts are drawn as curves over the rank."""
_COLOURS = ("#2a78b8", "#e08a1e")
_KINDS = (".png", ".svg", ".pdf")


def check_plot_file(path: Path) -> None:
    """Refuse a file that could not be written, before anybody waits for the counts."""
    if path.suffix.lower() not in _KINDS:
        raise ConfigError(f"A plot is a {', '.join(_KINDS)} file, got {path.name!r}.")
    if not path.parent.is_dir():
        raise ConfigError(f"There is no folder {path.parent} for the plot. Make it, or name another one.")


def plot_balance(summary: Summary, path: Path) -> None:
    """Draw the pictures a label, most frequent first, of every part.

    Args:
        summary: What ``summarise`` returns.
        path: Where to write; its ending decides the kind of file.
    """
    from matplotlib.figure import Figure

    check_plot_file(path)
    order = np.argsort(-summary.parts[0].positives, kind="stable")
    few = len(order) <= _NAMED
    figure = Figure(figsize=(8, max(3.0, 1.2 + 0.24 * len(order)) if few else 4.5), layout="constrained")
    axes = figure.add_subplot()
    places = np.arange(len(order))
    thickness = 0.8 / len(summary.parts)
    for number, (part, colour) in enumerate(zip(summary.parts, _COLOURS, strict=False)):
        counts, name = part.positives[order], f"{part.name} ({part.images:,} pictures)"
        if few:
            axes.barh(places + thickness * (number - (len(summary.parts) - 1) / 2), counts, thickness, color=colour)
        else:
            axes.plot(places + 1, np.maximum(counts, 0.5), color=colour)  # a label that never occurs stays visible
        axes.plot([], [], color=colour, linewidth=6, label=name)
    if few:
        axes.set_yticks(places, [summary.labels[i] for i in order], fontsize=8, parse_math=False)
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.set_xlabel("pictures")
    else:
        axes.set(xlabel="rank of the label", ylabel="pictures", xscale="log", yscale="log")
    axes.set_title(f"{summary.name}: {len(order):,} labels", parse_math=False)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
