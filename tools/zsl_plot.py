"""A picture of what a zero-shot run on the drawn pictures knows: the AP of every pair, trained or not.

mldecoder train --recipe scenes-zsl --output runs/zsl
python -m tools.zsl_plot runs/zsl docs/drawings/zero-shot-scenes.png
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from accelerate import Accelerator

import mldecoder as mld
from mldecoder.data.detect import open_dataset
from mldecoder.data.scenes import COLOURS, SHAPES
from mldecoder.metrics import average_precision
from mldecoder.training.scoring import score

__all__ = ["draw", "precisions"]


def precisions(model: mld.Classifier) -> dict[str, float]:
    """The AP of every label on the held-out pictures, in percent."""
    dataset = open_dataset("scenes")
    if dataset.val is None:
        raise SystemExit("The drawn pictures have a validation part; this is another set.")
    images = dataset.val.keep_labels(model.labels)
    scores = score(model, images, model.config.preprocessing, Accelerator(cpu=True), batch_size=64)
    values = average_precision(scores.logits, scores.targets)
    return {label: 100 * float(value) for label, value in zip(model.labels, values, strict=True)}


def draw(found: Mapping[str, float], unseen: Sequence[str], file: Path) -> None:
    """A table of colours and shapes; pairs that were never trained are framed."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axes = figure.subplots()
    grid = [[found[f"{colour} {shape}"] for shape in SHAPES] for colour in COLOURS]
    shown = axes.imshow(grid, cmap="Blues", vmin=0, vmax=100)
    for y, colour in enumerate(COLOURS):
        for x, shape in enumerate(SHAPES):
            value = grid[y][x]
            axes.text(x, y, f"{value:.0f}", ha="center", va="center", color="white" if value > 55 else "#222222")
            if f"{colour} {shape}" in unseen:
                frame = Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, fill=False, edgecolor="#d1495b", linewidth=2.5)
                axes.add_patch(frame)
    axes.set_xticks(range(len(SHAPES)), SHAPES)
    axes.set_yticks(range(len(COLOURS)), COLOURS)
    axes.tick_params(length=0)
    axes.set_title("AP of every pair on held-out pictures; framed: never trained", fontsize=11)
    figure.colorbar(shown, ax=axes, label="average precision, %", shrink=0.85)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Draw a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    model = mld.load(str(given.run))
    draw(precisions(model), model.unseen, given.file)


if __name__ == "__main__":
    main()
