"""What the README and the pages of the documentation show is run, parsed or looked up."""

import ast
import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from mldecoder.cli import app
from mldecoder.data.detect import FORMATS
from mldecoder.data.options import DataOptions
from mldecoder.recipes import Recipe, list_recipes, load_recipe

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TRAINING = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
ZERO_SHOT = (ROOT / "docs" / "zero-shot.md").read_text(encoding="utf-8")
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def run_and_compare(code: str, names: dict[str, object]) -> None:
    """Run the code; where a line has its value in a comment (a shape, a tuple, a list, a tensor), compare."""
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        source = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
        _, _, comment = source.rpartition("  # ")
        shown = comment != source and comment.startswith(("torch.Size", "tensor", "(", "["))
        if isinstance(statement, ast.Expr) and shown:
            assert repr(eval(source, names)) == comment, source
        else:
            exec(source, names)


def test_the_python_blocks_run_and_give_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(README, "python"):
        run_and_compare(block, names)
    assert {file.name for file in (tmp_path / "my-model").iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }


def test_the_python_blocks_show_values_that_are_checked() -> None:
    assert sum(block.count("  # torch.Size") for block in blocks(README, "python")) >= 3


def test_the_page_on_training_trains_and_names_every_file_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(TRAINING, "python"):
        run_and_compare(block, names)
    for file in (tmp_path / "runs" / "first").iterdir():
        assert f"`{file.name}{'/' if file.is_dir() else ''}`" in TRAINING, file.name
    figures: Any = names["figures"]
    for name in figures:
        assert name in TRAINING


def commands() -> Iterator[str]:
    """Every line that starts the command line, by itself or through a launcher."""
    for text in (README, *(page.read_text(encoding="utf-8") for page in PAGES if page.parent.name == "docs")):
        for block in blocks(text, "bash"):
            for line in block.splitlines():
                _, found, words = line.rpartition("-m mldecoder ")
                if found or line.startswith("mldecoder "):
                    yield (words if found else line.removeprefix("mldecoder ")).partition(" > ")[0]


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_the_commands_have_known_verbs_options_and_settings(command: str) -> None:
    verb, *arguments = shlex.split(command, comments=True)
    group = typer.main.get_group(app)
    with group.make_context("mldecoder", [verb]) as context:
        found = group.get_command(context, verb)
        assert found is not None, f"mldecoder has no verb {verb!r}"
        values = found.make_context(verb, arguments, parent=context).params  # parses and runs nothing
    recipe = values.get("recipe") or "quick"
    load_recipe("coco" if recipe == "mine.yaml" else recipe, values.get("set_") or [])
    for option in values.get("option") or []:
        assert option.partition("=")[0] in {field.name for field in dataclasses.fields(DataOptions)}


def keys_of(section: type[BaseModel]) -> Iterator[str]:
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys_of(inner)
        yield name


@pytest.mark.parametrize(
    "name",
    [
        *FORMATS,
        *(field.name for field in dataclasses.fields(DataOptions)),
        *list_recipes(),
        *(key for key in keys_of(Recipe) if key not in {"description", "expected"}),
    ],
)
def test_the_pages_name_every_format_option_recipe_and_key(name: str) -> None:
    in_recipe = rf"(`[\w.]*\b{name}\b|^ *{name}:)"  # with its section before it, or in the block of YAML
    assert f"`{name}`" in TRAINING or re.search(in_recipe, ZERO_SHOT, flags=re.MULTILINE)


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]
    assert [page.name for page in pages if page.name != "index.md" and f"{page.name})" not in index] == []


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    tables = ("coco-heads", "reproduce-head-options")
    measured = "".join((ROOT / "benchmarks" / f"{name}.md").read_text(encoding="utf-8") for name in tables)
    shown = re.findall(r"\d\d\.\d\d ± \d\.\d\d|\+\d\.\d\d \(.*?\)|\d\d\.\d\d where", README)
    assert len(shown) == 7
    for figure in shown:
        assert figure.removesuffix(" where") in measured, figure


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith(("http://", "https://", "#", "mailto:")):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"
