"""``mldecoder train``: pictures and tags in, a run folder out."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["train"]


def train(
    data: Annotated[
        str | None, typer.Option(help="Folder, table, shards, hf:NAME or scenes; its format is found out.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe name or YAML file; see mldecoder recipes.")] = None,
    init_from: Annotated[Path | None, typer.Option(help="Backbone weights (.safetensors), or a model folder.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override, such as training.epochs=3.")] = None,
    output: Annotated[Path | None, typer.Option(help="Run folder; one under runs/ by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --output (or runs/last).")] = False,
    overfit_batch: Annotated[
        bool, typer.Option("--overfit-batch", help="Only see whether the model can learn one batch by heart.")
    ] = False,
) -> None:
    """Train a model on pictures and tags.

    Example: [bold]mldecoder train --data photos.csv[/]
    """
    from mldecoder.training import api

    if overfit_batch:
        learnt = api.overfit_batch(data, recipe=recipe, init_from=init_from, overrides=set_ or [])
        raise typer.Exit(0 if learnt else 1)
    api.train(data, recipe=recipe, output=output, init_from=init_from, overrides=set_ or [], resume=resume)
