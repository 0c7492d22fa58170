"""``mldecoder recipes``: which recipes there are, and what stands in them."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

__all__ = ["recipes"]


def recipes(
    name: Annotated[str | None, typer.Argument(help="Recipe to print; without it all are listed.")] = None,
) -> None:
    """List the recipes and the figures they should reach, or print one as YAML.

    Example: [bold]mldecoder recipes coco > mine.yaml[/]
    """
    console = Console()
    if name is None:
        console.print(_table(_built_in()))
        console.print("mldecoder recipes NAME prints one; mldecoder train --recipe NAME trains by it.", soft_wrap=True)
        return
    text = _built_in().get(name) or _own(name)
    if console.is_terminal:
        console.print(Syntax(text, "yaml", background_color="default", word_wrap=True))
    else:
        console.print(text, end="", markup=False, highlight=False, soft_wrap=True)


def _built_in() -> dict[str, str]:
    """The text of every recipe of the package, by name; read without the schema, which would load torch."""
    entries = sorted((files("mldecoder") / "recipes").iterdir(), key=lambda entry: entry.name)
    yamls = [entry for entry in entries if entry.name.endswith(".yaml")]
    return {entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8") for entry in yamls}


def _own(name: str) -> str:
    """A recipe file of the user's; a name that is none and a file that is wrong are errors with their own sentence."""
    from mldecoder.recipes import load_recipe

    load_recipe(name)
    return Path(name).read_text(encoding="utf-8")


def _table(texts: dict[str, str]) -> Table:
    table = Table("recipe", "what it trains", "expected figures", show_lines=True)
    for name, text in texts.items():
        recipe = yaml.safe_load(text)
        figures = "\n".join(f"{metric}: {figure}" for metric, figure in recipe.get("expected", {}).items())
        table.add_row(name, escape(recipe["description"]), escape(figures) or "-")
    return table
