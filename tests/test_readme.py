"""What the README shows is run."""

import ast
import re
import shlex
from pathlib import Path

import pytest
import typer

from mldecoder.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def run_and_compare(code: str, names: dict[str, object]) -> None:
    """Run the code; where a line has its value in a comment (a shape, a tuple, a list), compare."""
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        source = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
        _, _, comment = source.rpartition("  # ")
        if isinstance(statement, ast.Expr) and comment != source and comment.startswith(("torch.Size", "(", "[")):
            assert repr(eval(source, names)) == comment, source
        else:
            exec(source, names)


def test_the_python_blocks_run_and_give_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python"):
        run_and_compare(block, names)
    assert {file.name for file in (tmp_path / "my-model").iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }


def test_the_python_blocks_show_values_that_are_checked() -> None:
    assert sum(block.count("  # torch.Size") for block in blocks("python")) >= 3


@pytest.mark.parametrize(
    "command", [line for block in blocks("bash") for line in block.splitlines() if line.startswith("mldecoder ")]
)
def test_the_commands_have_known_verbs_and_options(command: str) -> None:
    _, verb, *arguments = shlex.split(command)
    group = typer.main.get_group(app)
    with group.make_context("mldecoder", [verb]) as context:
        found = group.get_command(context, verb)
        assert found is not None, f"mldecoder has no verb {verb!r}"
        found.make_context(verb, arguments, parent=context)  # parses and runs nothing


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith(("http://", "https://", "#", "mailto:")):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"
