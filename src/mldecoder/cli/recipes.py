"""``mldecoder recipes``: which recipes there are, and what stands in them."""

from pathlib import Path
from typing import Annotated

import typer
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
        console.print(_table())
        console.print("mldecoder recipes NAME prints one; mldecoder train --recipe NAME trains by it.", soft_wrap=True)
        return
    text = _text_of(name)
    if console.is_terminal:
        console.print(Syntax(text, "yaml", background_color="default", word_wrap=True))
    else:
        console.print(text, end="", markup=False, highlight=False, soft_wrap=True)


def _table() -> Table:
    from mldecoder.recipes import list_recipes, load_recipe

    table = Table("recipe", "what it trains", "expected figures", show_lines=True)
    for name in list_recipes():
        recipe = load_recipe(name)
        figures = "\n".join(f"{metric}: {figure}" for metric, figure in recipe.expected.items())
        table.add_row(name, escape(recipe.description), escape(figures) or "-")
    return table


def _text_of(name: str) -> str:
    from importlib.resources import files

    from mldecoder.recipes import list_recipes, load_recipe

    load_recipe(name)  # an unknown name and a broken file are errors with their own sentence
    home = files("mldecoder.recipes") / f"{name}.yaml" if name in list_recipes() else Path(name)
    return home.read_text(encoding="utf-8")
