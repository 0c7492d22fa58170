"""``mldecoder calibrate``: honest scores and thresholds."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["calibrate"]


def calibrate(
    run: Annotated[Path, typer.Argument(help="Run folder (its best model) or model folder.")],
    data: Annotated[
        str | None, typer.Option(help="Labelled pictures to fit on; the run's own validation part by default.")
    ] = None,
    wish: Annotated[str, typer.Option(help="f1, precision=0.9 or recall=0.8: what thresholds are to reach.")] = "f1",
    min_positives: Annotated[
        int, typer.Option(min=1, help="Labels with fewer positives take the threshold for all labels.")
    ] = 10,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures scored together.")] = 32,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that decode pictures.")] = None,
) -> None:
    """Fit temperature, bias and thresholds, and store them in the model.

    predict uses them from then on. The figures that are printed come from two folds.

    Example: [bold]mldecoder calibrate runs/last --wish precision=0.9[/]
    """
    from mldecoder.calibration import api
    from mldecoder.calibration.report import headline
    from mldecoder.predict.labelled import model_folder
    from mldecoder.predict.meter import Meter

    console = Console(soft_wrap=True, highlight=False)
    with Meter("pictures", Console(stderr=True, soft_wrap=True)) as meter:
        made = api.calibrate(
            run,
            data,
            wish=wish,
            min_positives=min_positives,
            batch_size=batch_size,
            workers=workers,
            advance=meter.more,
        )
    for line in headline(made):
        console.print(line, markup=False)
    if made.settings.fallback is not None and bool(made.settings.fallback.any()):
        few = int(made.settings.fallback.sum())
        console.print(f"{few} labels have fewer than {min_positives} positives and take the threshold for all.")
    report = run / "calibration" / "report.md"
    console.print(f"Stored in {model_folder(run) / 'config.json'}. Report: {report}", markup=False)
