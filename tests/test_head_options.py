"""What the options of the head cost: the counted page, and the time of training steps."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tools import head_options
from tools.head_options import PAGE, PAPER, TABLE, cost, main, page, settings, sure_of_median, time_rows, write
from tools.training_step import TrainingStep, place_on, time_rounds

from mldecoder.errors import ConfigError, TrainingError
from mldecoder.recipes import Recipe, load_recipe
from mldecoder.reproduce.table import Row

TINY = ["head.width=16", "head.ff_width=32", "head.heads=2", "image.size=32", "training.batch_size=2"]


def recipe_of(*overrides: str) -> Recipe:
    return load_recipe("quick", ["backbone.name=test_resnet", "backbone.pretrained=false", *TINY, *overrides])


@pytest.fixture
def own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that stay, whatever is tried next."""
    rows = (
        TABLE.row(PAPER),
        Row("branch", ("backbone.options.earlier_map=true", "head.kind=ml-decoder+", "head.branch=mean+max")),
        Row("longer", ("image.size=24", "training.epochs=30")),
    )
    monkeypatch.setattr(head_options, "TABLE", replace(TABLE, rows=rows, claims=()))


def run(backbone: str = "resnet50") -> dict[str, Any]:
    """A run as ``time`` writes it."""
    row = {"px": 224, "batch": 64, "epochs": 15, "ms_per_step": 32.0, "pictures_per_second": 2000.0, "device_ms": 25.5}
    rows = [
        {"name": PAPER, **row, "ratio": 1.0, "low": 1.0, "high": 1.0, "ratios": [1.0], "device_ratio": 1.0},
        {"name": "better", **row, "ratio": 1.012, "low": 0.99, "high": 1.03, "ratios": [1.012], "device_ratio": 1.003},
    ]
    return {
        "command": f"python -m tools.head_options time better --backbone {backbone}",
        "backbone": backbone,
        "device": "cuda",
        "precision": "bf16",
        "torch": "2",
        "repeats": 15,
        "steps": 20,
        "rows": rows,
    }


def test_the_counted_costs_on_the_page_are_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "Run `python -m tools.head_options count`."


def test_the_page_has_the_rows_that_change_head_or_backbone_and_no_others() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for row in TABLE.rows:
        changes = row.name == PAPER or any(text.startswith(("head.", "backbone.")) for text in row.overrides)
        assert (f"\n| {row.name} |" in text) == changes, row.name


def test_every_row_has_the_recipe_of_its_runs() -> None:
    found = settings()
    assert list(found) == [row.name for row in TABLE.rows]
    assert found[PAPER].head == load_recipe("quick", ["head.num_queries=80"]).head


@pytest.mark.usefixtures("own_rows")
def test_another_kind_of_head_drops_out_as_much_as_the_papers() -> None:
    plus = settings(["branch"])["branch"].head
    assert (plus.kind, getattr(plus, "dropout", None)) == ("ml-decoder+", 0.2)


def test_costs_are_those_of_the_formulas() -> None:
    parameters, products = cost(load_recipe("quick"))
    t, c, d, k, f, n = 49, 2048, 768, 80, 2048, 80
    assert products == t * c * d + 2 * k * d * d + 2 * t * d * d + 2 * k * t * d + 2 * k * d * f + n * d
    branch = load_recipe("quick", ["head.kind=ml-decoder+", "head.branch=mean"])
    assert cost(branch) == (parameters + n * c + n, products + n * c)
    earlier = load_recipe("quick", ["backbone.options.earlier_map=true"])
    assert cost(earlier) == (parameters + 1024 * d, products + t * 1024 * d)


def test_a_step_trains_the_model_and_moves_its_average() -> None:
    step = TrainingStep(recipe_of("training.clip_norm=1", "augment.mosaic=0.5"), 5, place_on("cpu"))
    assert step.images.shape == (2, 3, 32, 32)
    assert step.ema is not None
    models = {"weights": step.model, "average": step.ema.model}
    before = {name: [p.detach().clone() for p in model.parameters()] for name, model in models.items()}
    for _ in range(2):
        step()
    assert step.steps == 2
    assert torch.isfinite(step.loss)
    assert all(p.grad is None for p in step.model.parameters())
    for name, model in models.items():
        assert any(not torch.equal(p, old) for p, old in zip(model.parameters(), before[name], strict=True)), name


def test_a_frozen_backbone_stays_and_there_may_be_no_average() -> None:
    step = TrainingStep(recipe_of("training.freeze=backbone", "training.ema_decay=null"), 5, place_on("cpu"))
    before = [p.clone() for p in step.model.backbone.parameters()]
    step()
    assert step.ema is None
    assert all(torch.equal(p, old) for p, old in zip(step.model.backbone.parameters(), before, strict=True))


def test_a_recipe_that_the_step_does_not_follow_is_refused() -> None:
    with pytest.raises(ConfigError, match="The timed step is the plain one"):
        TrainingStep(recipe_of("training.accumulate=2"), 5, place_on("cpu"))


def test_blocks_take_turns_and_the_first_rounds_are_not_told() -> None:
    made = {name: TrainingStep(recipe_of(), 5, place_on("cpu")) for name in ("a", "b")}
    seconds = time_rounds(made, place_on("cpu"), block=2, rounds=3, warm_up=1)
    assert {name: len(own) for name, own in seconds.items()} == {"a": 3, "b": 3}
    assert min(min(own) for own in seconds.values()) > 0
    assert [step.steps for step in made.values()] == [12, 12]  # four rounds of two, and one untimed before each


def test_a_step_that_fails_or_diverges_is_named() -> None:
    step = TrainingStep(recipe_of("optimiser.lr=1e30"), 5, place_on("cpu"))
    with pytest.raises(TrainingError, match="wild: the loss must be a number, got nan"):
        time_rounds({"wild": step}, place_on("cpu"), block=1, rounds=3)
    step.images = step.images[:, :2]
    with pytest.raises(TrainingError, match="broken: RuntimeError"):
        time_rounds({"broken": step}, place_on("cpu"), block=1, rounds=1)


@pytest.mark.usefixtures("own_rows")
def test_rows_are_timed_beside_the_papers_head_and_that_one_beside_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = [word for text in TINY[:-1] for word in ("--set", text)]
    where = ["--backbone", "test_resnet", "--device", "cpu", "--batch", "2", "--repeats", "3", "--steps", "1"]
    main(["time", "branch", PAPER, *where, *sizes, "--output", str(tmp_path / "out")])
    found = json.loads((tmp_path / "out" / "time-test_resnet.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == [PAPER, "branch", f"{PAPER}, once more"]
    assert rows[PAPER]["ratios"] == [1.0, 1.0, 1.0]
    for row in rows.values():
        assert len(row["ratios"]) == 3
        assert 0 < row["low"] <= row["ratio"] <= row["high"]
        assert row["pictures_per_second"] == pytest.approx(2000 / row["ms_per_step"])
        assert (row["px"], row["batch"], row["epochs"]) == (32, 2, 15)
        assert (row["device_ms"], row["device_ratio"]) == (None, None)  # of the CPU there is no such time
    assert f'time "branch" "{PAPER}" --backbone test_resnet' in found["command"]
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4
    assert said[1].startswith(f"test_resnet | {PAPER} | 32 | 15 | ")


@given(
    own=st.lists(st.floats(0.01, 10), min_size=1, max_size=8),
    epochs=st.integers(1, 30),
    batch=st.integers(1, 128),
    data=st.data(),
)
def test_a_ratio_is_that_of_all_steps_on_all_pictures(
    own: list[float], epochs: int, batch: int, data: st.DataObject
) -> None:
    papers = [data.draw(st.floats(0.01, 10)) for _ in own]
    recipe = load_recipe("quick", [f"training.epochs={epochs}", f"training.batch_size={batch}"])
    found = head_options._timed("one", recipe, own, load_recipe("quick"), papers)
    pictures = 1000
    slow = [(pictures * epochs / batch * a) / (pictures * 15 / 64 * b) for a, b in zip(own, papers, strict=True)]
    assert found["ratios"] == pytest.approx(slow)
    assert found["ratio"] == pytest.approx(float(torch.tensor(slow, dtype=torch.float64).quantile(0.5)))


@pytest.mark.usefixtures("own_rows")
def test_a_row_has_pictures_of_its_own_size_and_its_epochs_are_counted() -> None:
    found = time_rows(["longer"], backbone="test_resnet", batch=2, device="cpu", repeats=1, steps=1, further=TINY[:3])
    paper, longer = found["rows"]
    assert [(row["px"], row["batch"], row["epochs"]) for row in (paper, longer)] == [(224, 2, 15), (24, 2, 30)]
    assert longer["ratio"] == pytest.approx(2 * longer["ms_per_step"] / paper["ms_per_step"])


@given(count=st.integers(1, 60), data=st.data())
def test_the_median_lies_between_the_ranks_in_95_of_100_cases(count: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(count)))
    low, high = sure_of_median([float(value) for value in order])
    rank = int(low)
    assert high == count - 1 - rank
    outside = 2 * sum(math.comb(count, heads) for heads in range(rank + 1)) / 2**count
    inner = 2 * sum(math.comb(count, heads) for heads in range(rank + 2)) / 2**count
    assert outside <= 0.05 or rank == 0
    assert inner > 0.05 or rank + 1 > count - 2 - rank


def test_of_few_rounds_the_median_lies_anywhere_between_them() -> None:
    assert sure_of_median([3.0, 1.0, 2.0]) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bettr"], "^head-options has no row 'bettr'. It has [^\n]*$"),
        ([PAPER, "--steps", "0"], "--steps must be at least 1, got 0"),
        ([PAPER, "--set", "head.wdith=3", "--device", "cpu"], "wdith"),
    ],
)
def test_a_wrong_wish_is_told_in_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=message):
        main(["time", *arguments, "--output", str(tmp_path)])


def test_what_was_timed_becomes_a_table_of_all_backbones(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"There is no time-\*\.json"):
        write(tmp_path, "abc", "a card")
    for backbone in ("resnet50", "tf_efficientnet_lite0"):
        (tmp_path / f"time-{backbone}.json").write_text(json.dumps(run(backbone)), encoding="utf-8")
    write(tmp_path, "abc", "a card", tmp_path)
    text = (tmp_path / "head-options-time.md").read_text(encoding="utf-8")
    assert "| resnet50 | better | 224 | 15 | 32.00 | 2000 | +1.2% (-1.0% to +3.0%) | 25.50 | +0.3% |" in text
    assert f"| tf_efficientnet_lite0 | {PAPER} | 224 | 15 | 32.00 | 2000 |  | 25.50 |  |" in text
    assert "batch 64, bf16 on cuda, torch 2. Rows take turns, block by block: 15 rounds of 20 steps." in text
    assert "- `python -m tools.head_options time better --backbone resnet50`" in text
    assert "at commit abc on a card" in text
    assert len(json.loads((tmp_path / "head-options-time.json").read_text(encoding="utf-8"))["rows"]) == 4
