"""``mldecoder explain``: where the model looked."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from mldecoder.cli.words import read_labels, read_threshold

if TYPE_CHECKING:
    from mldecoder.explain import Explanation
    from mldecoder.model import Classifier

__all__ = ["explain"]

_SHEET = 12  # pictures on one contact sheet


def explain(
    run: Annotated[str, typer.Argument(help="Run folder (its best model), model folder or hub id.")],
    paths: Annotated[list[Path] | None, typer.Argument(help="Pictures, and folders to search for pictures.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the overlays and the contact sheet.")] = Path("explained"),
    labels: Annotated[
        str | None, typer.Option(help='Labels to explain, as in "dog, cat"; the predicted ones by default.')
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="At most this many labels a picture.")] = None,
    threshold: Annotated[
        str, typer.Option(help="Score from which a label is predicted; auto: as calibrated.")
    ] = "auto",
    per_head: Annotated[bool, typer.Option("--per-head", help="Show every attention head by itself too.")] = False,
    check: Annotated[
        str | None, typer.Option(help="Measure on this dataset whether the maps are faithful, instead.")
    ] = None,
    limit: Annotated[int, typer.Option(min=2, help="Pictures that --check measures on.")] = 500,
) -> None:
    """Show where a model looked for each label, as PNG files.

    With --check: how much more the score falls when the most attended fifth is hidden than another fifth.

    Example: [bold]mldecoder explain runs/last photo.jpg --out maps[/]
    """
    from mldecoder.errors import ConfigError
    from mldecoder.model import load
    from mldecoder.predict.device import best_device
    from mldecoder.predict.files import check_paths

    if (check is None) == (not paths):
        raise ConfigError("Pass either pictures to explain, or --check DATA to measure.")
    names, least = read_labels(labels), read_threshold(threshold)
    if paths:
        check_paths(paths)
    model = load(run).to(best_device())
    if check is not None:
        _measure(model, run, check, limit)
        return
    _draw(model, paths or [], out, names, top_k, None if least == "auto" else least, per_head=per_head)


def _draw(
    model: "Classifier",
    paths: list[Path],
    out: Path,
    labels: list[str] | None,
    top_k: int | None,
    threshold: float | None,
    *,
    per_head: bool,
) -> None:
    from mldecoder.errors import DataError
    from mldecoder.explain import Explainer
    from mldecoder.predict.inputs import named_files

    explainer = Explainer(model, labels=labels, top_k=top_k, threshold=threshold)
    console = Console(soft_wrap=True, highlight=False)
    waiting: list[Explanation] = []
    sheets = 0
    for source in named_files(paths):
        try:
            made = explainer(source)
        except DataError as error:
            Console(stderr=True, soft_wrap=True, highlight=False).print(str(error), markup=False)
            continue
        made.save(out, per_head=per_head)
        told = ", ".join(one.title + (f" ({'; '.join(one.notes)})" if one.notes else "") for one in made.maps)
        console.print(f"{made.name}: {told}", markup=False)
        waiting.append(made)
        if len(waiting) == _SHEET:
            sheets += 1
            _sheet(waiting, out, sheets)
            waiting = []
    if waiting:
        sheets += 1
        _sheet(waiting, out, sheets)
    if sheets:
        console.print(f"Overlays and contact sheet in {out}.", markup=False)


def _sheet(made: "list[Explanation]", out: Path, number: int) -> None:
    from mldecoder.explain.explanation import sheet_of

    sheet_of(made).save(out / ("contact-sheet.png" if number == 1 else f"contact-sheet-{number}.png"))


def _measure(model: "Classifier", run: str, data: str, limit: int) -> None:
    from mldecoder.explain import faithfulness
    from mldecoder.predict.labelled import labelled_part
    from mldecoder.predict.meter import Meter

    part = labelled_part(run, data)
    with Meter("pictures", Console(stderr=True, soft_wrap=True)) as meter:
        found = faithfulness(model, part, limit=limit, advance=meter.more)
    for line in found.lines():
        Console(soft_wrap=True, highlight=False).print(line, markup=False)
