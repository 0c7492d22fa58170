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
    resume_if_there: Annotated[
        bool,
        typer.Option(
            "--resume-if-there",
            help="Go on if --output holds this very run, else begin it; for jobs that a cluster starts anew. "
            "What torchrun starts does so anyway.",
        ),
    ] = False,
    overfit_batch: Annotated[
        bool, typer.Option("--overfit-batch", help="Only see whether the model can learn one batch by heart.")
    ] = False,
) -> None:
    """Train a model on pictures and tags.

    Example: [bold]mldecoder train --data photos.csv[/]

    On many devices: [bold]torchrun --nproc-per-node 4 --max-restarts 3 -m mldecoder train --data photos.csv
    --output runs/photos[/]. A process that dies is started anew, and the run goes on from its last checkpoint.
    """
    from accelerate import PartialState

    from mldecoder.training import api

    if overfit_batch:
        learnt = api.overfit_batch(data, recipe=recipe, init_from=init_from, overrides=set_ or [])
        raise typer.Exit(0 if learnt else 1)
    api.train(
        data,
        recipe=recipe,
        output=output,
        init_from=init_from,
        overrides=set_ or [],
        resume=resume,
        resume_if_there=resume_if_there,
    )
    PartialState().destroy_process_group()  # else NCCL complains at the end
