from importlib.resources import files
from pathlib import Path

import yaml

from mldecoder.recipes import list_recipes
from tests.cli import run


def test_recipes_are_listed_with_the_figures_to_expect() -> None:
    result = run("recipes")
    assert result.returncode == 0, result.stderr
    for name in list_recipes():
        assert f"│ {name} " in result.stdout
    assert "mAP: 90.0 (paper, Table 5, mean of three seeds)" in result.stdout


def test_a_recipe_is_printed_as_it_stands_in_its_file() -> None:
    result = run("recipes", "coco")
    assert result.stdout == (files("mldecoder.recipes") / "coco.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(result.stdout)["training"]["epochs"] == 40


def test_a_recipe_of_ones_own_is_checked_and_printed(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("training: {epochs: 3}  # [bold]few[/]\n", encoding="utf-8")
    assert run("recipes", str(mine)).stdout == mine.read_text(encoding="utf-8")
    mine.write_text("training: {epoch: 3}\n", encoding="utf-8")
    result = run("recipes", str(mine))
    assert result.returncode == 1
    assert "unknown key 'training.epoch'. Did you mean 'epochs'?" in result.stderr


def test_an_unknown_recipe_is_one_line_that_names_the_nearest() -> None:
    result = run("recipes", "koko-224")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "mldecoder: Unknown recipe 'koko-224'. Did you mean 'coco-224'?\n"
