"""``mldecoder eval``: figures of a trained model."""

import json as json_
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["evaluate"]


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder or model folder.")],
    data: Annotated[str | None, typer.Option(help="Dataset to evaluate on; the run's own by default.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override, such as evaluation.flip=true.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure a trained model on the validation part of a dataset.

    Example: [bold]mldecoder eval runs/last --set evaluation.size=288[/]
    """
    from mldecoder.training import api

    metrics = api.evaluate(run, data, overrides=set_ or [], quiet=json)
    if json:
        Console().print_json(json_.dumps(metrics))
        return
    lists = {"": "all (GZSL)", "seen_": "seen", "unseen_": "unseen (ZSL)"} if "seen_mAP" in metrics else {"": "percent"}
    table = Table("metric", *lists.values())
    for name in metrics:
        if "seen_" not in name:  # those stand beside the same figure of all labels
            found = [metrics.get(prefix + name) for prefix in lists]
            table.add_row(name, *("" if value is None else f"{value:.2f}" for value in found))
    Console().print(table)
