"""``mldecoder demo``: the main job on the embedded pictures."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["demo"]


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the two runs; an older demo in it is replaced.")] = Path(
        "runs/demo"
    ),
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override, such as training.epochs=1.")] = None,
) -> None:
    """Train average pooling and ML-Decoder on drawn pictures, in minutes on a CPU, and compare them.

    Example: [bold]mldecoder demo[/]
    """
    from mldecoder.training.demo import compare_heads

    runs = compare_heads(output, set_ or [])
    console = Console(soft_wrap=True, highlight=False)
    table = Table("head", "mAP", "OF1", "minutes")
    for name, run in runs.items():
        metrics = run.metrics
        table.add_row(name, f"{metrics['mAP']:.1f}", f"{metrics['OF1']:.1f}", f"{metrics['seconds'] / 60:.1f}")
    console.print(table)
    folder = runs["ML-Decoder"].path
    console.print(
        f"Open [bold]{folder / 'report.html'}[/] in a browser: curves, labels, confident mistakes.\n"
        f"Then try\n"
        f"  mldecoder eval {folder} --set evaluation.flip=true\n"
        f"  mldecoder train --data YOUR_PICTURES      (a folder of class folders, a CSV, COCO, VOC, ...)\n"
        f"  mldecoder data YOUR_PICTURES              (look at the data first)\n"
        f"  mldecoder recipes                         (the paper's settings)"
    )
