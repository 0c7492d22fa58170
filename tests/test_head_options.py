"""The page and the tables of the head's options."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
from tools import head_options
from tools.head_options import PAGE, PAPER, confirmed_table, cost, page, search_table, settings


def row(name: str, score: float, seed: int = 0) -> dict[str, object]:
    return {"name": name, "seed": seed, "ema_mAP": score, "images_per_second": 1000}


def test_the_counted_costs_on_the_page_are_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "Run `python -m tools.head_options count`."


def test_there_are_settings_to_try_and_the_papers_head_is_the_first() -> None:
    found = settings()
    assert next(iter(found)) == PAPER
    assert found[PAPER] == []
    assert 14 <= len(found) <= 18


def test_costs_are_those_of_the_formulas() -> None:
    parameters, products = cost([])
    t, c, d, k, f, n = 49, 2048, 768, 80, 2048, 80
    assert products == t * c * d + 2 * k * d * d + 2 * t * d * d + 2 * k * t * d + 2 * k * d * f + n * d
    assert cost(["head.kind=ml-decoder+", "head.branch=mean"]) == (parameters + n * c + n, products + n * c)
    earlier = cost(["backbone.options.earlier_map=true"])
    assert earlier == (parameters + 1024 * d, products + t * 1024 * d)


def test_the_search_is_told_best_first_and_beside_the_papers_head() -> None:
    rows = [row(PAPER, 60.0), row("better", 61.5), {"name": "broken", "seed": 0, "error": ["no"]}]
    table = search_table(rows, "abc", "here")
    assert [line["setting"] for line in table.rows] == ["better", PAPER]
    assert table.rows[0]["less the paper's head"] == "+1.50"


def test_confirmed_settings_are_paired_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(PAPER, 60.0 + seed, seed) for seed in range(3)]
    rows += [row("better", 61.0 + seed + 0.1 * seed, seed) for seed in (2, 0, 1)]
    line = confirmed_table(rows, "resnet50", "abc", "here").rows[1]
    assert line["seeds"] == "61.00 62.10 63.20"
    assert str(line["less the paper's head (95%)"]).startswith("+1.10 (")
    (tmp_path / "resnet50").mkdir()
    (tmp_path / "resnet50" / "confirm.json").write_text(json.dumps(rows))
    written: list[str] = []
    monkeypatch.setattr("tools.tables.Table.write", lambda table: written.append(table.name))
    head_options.write(Namespace(output=tmp_path, commit="abc", hardware="here"))
    assert written == ["head-options-resnet50"]


def test_a_setting_that_is_not_there_is_named() -> None:
    with pytest.raises(SystemExit, match="There is no setting 'bettr'"):
        head_options.confirm(Namespace(names=["bettr"]))
