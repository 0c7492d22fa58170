"""The tables as data: every row can be loaded, every figure is the paper's."""

import re
from pathlib import Path

import pytest

from mldecoder.errors import ConfigError
from mldecoder.recipes import load_recipe
from mldecoder.reproduce import TABLES, find_table
from mldecoder.reproduce.listing import describe
from mldecoder.reproduce.plan import Wish, plan
from mldecoder.reproduce.settings import setting_of
from mldecoder.reproduce.sources import SOURCES
from mldecoder.reproduce.table import BUDGETS, Budget, Row, Setting, Table

# fmt: off
NEEDED = [
    "query-types", "heads-coco", "heads-many-classes", "coco", "flops", "query-augmentations", "zsl-groups",
    "zsl-query-head", "nus-wide-zsl", "resolutions", "voc", "open-images", "imagenet-a1", "imagenet-heads",
    "imagenet-speed", "cifar100", "cars", "groups", "throughput", "pets", "head-options",
]
# fmt: on
LABELS = {"multi-label": 80, "zero-shot": 80, "single-label": 37}


def test_every_table_that_was_asked_for_is_there() -> None:
    assert sorted(NEEDED) == sorted(TABLES)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", NEEDED)
def test_every_run_of_every_table_has_a_recipe_that_loads(name: str, budget: Budget, tmp_path: Path) -> None:
    table = find_table(name)
    if table.method == "bench":
        return
    labels = LABELS[table.kind] if budget != "full" else SOURCES[table.data].labels.number
    jobs = plan(table, Wish("data", budget, tmp_path, seeds=2), labels)
    assert len(jobs) == 2 * len(table.run_rows(budget))
    assert len({job.folder for job in jobs}) == len(jobs)
    assert len({job.key for job in jobs}) == len({(job.seed, job.settings) for job in jobs})
    for job in jobs:
        recipe = load_recipe(job.recipe, job.overrides)
        assert recipe.training.seed == job.seed
        assert "{" not in "".join(text for text in job.overrides if not text.startswith("data.options"))


def test_rows_of_a_table_differ_from_each_other_in_full(tmp_path: Path) -> None:
    for table in TABLES.values():
        if table.method == "train":
            jobs = plan(table, Wish("data", "full", tmp_path, seeds=1), SOURCES[table.data].labels.number)
            settings = [load_recipe(job.recipe, job.overrides).model_dump_json() for job in jobs]
            assert len(set(settings)) == len(settings), table.name


def test_the_small_flops_table_takes_the_weights_of_each_backbone_from_a_folder(tmp_path: Path) -> None:
    for name in ("mobilenetv2_100", "tf_efficientnet_lite0"):
        (tmp_path / f"{name}.safetensors").touch()
    wish = Wish("coco", "small", tmp_path, init_from=tmp_path, seeds=1)
    with pytest.raises(ConfigError, match=r"has no weights of resnet50: resnet50\.safetensors is missing"):
        plan(find_table("flops"), wish, 80)
    (tmp_path / "resnet50.safetensors").touch()
    found = [Path(job.init_from or "").stem for job in plan(find_table("flops"), wish, 80)]
    assert found == [name for name in ("mobilenetv2_100", "tf_efficientnet_lite0", "resnet50") for _ in range(2)]


def test_rows_of_other_tables_with_the_same_settings_are_the_same_run(tmp_path: Path) -> None:
    def key(table: str, row: str, *overrides: str, seed: int = 1) -> str:
        wish = Wish("coco", "small", tmp_path, seeds=seed + 1, rows=(row,), overrides=overrides)
        return plan(find_table(table), wish, 80)[-1].key

    whole = key("heads-coco", "ML-Decoder K=N")
    assert whole == key("groups", "full decoding, K=N") == key("query-types", "fixed random")
    assert whole == key("head-options", "the paper's head", "text.encoder=words:some.npz", "data.workers=3")
    assert whole != key("query-types", "learnable")
    assert whole != key("heads-coco", "ML-Decoder K=N", seed=0)
    assert whole != key("heads-coco", "ML-Decoder K=N", "training.epochs=3")
    assert key("heads-coco", "ML-Decoder K=N/4") == key("groups", "random groups")
    words = [key("groups", "semantic groups", f"text.encoder=words:{name}.npz") for name in ("one", "two")]
    assert words[0] != words[1]


def test_the_same_run_has_the_same_key_on_another_machine(tmp_path: Path) -> None:
    jobs = [
        plan(find_table("voc"), Wish(f"{home}/coco", "small", tmp_path / home, init_from=Path(home, "a.pt")), 80)
        for home in ("here", "there")
    ]
    assert [job.key for job in jobs[0]] == [job.key for job in jobs[1]]
    other = plan(find_table("voc"), Wish("coco", "small", tmp_path, overrides=("training.epochs=3",)), 80)
    assert not {job.key for job in jobs[0]} & {job.key for job in other}


def test_what_is_chosen_on_is_not_what_is_measured(tmp_path: Path) -> None:
    keys = [
        {job.key for job in plan(find_table("head-options"), Wish("coco", "small", tmp_path, choose=choose), 80)}
        for choose in (False, True)
    ]
    assert not keys[0] & keys[1]


def test_an_override_of_the_user_wins(tmp_path: Path) -> None:
    wish = Wish("coco", "small", tmp_path, backbone="resnet18", overrides=("training.epochs=3",), seeds=1)
    for job in plan(find_table("heads-coco"), wish, 80):
        recipe = load_recipe(job.recipe, job.overrides)
        assert (recipe.backbone.name, recipe.training.epochs, recipe.training.eval_every) == ("resnet18", 3, 3)


def test_a_row_that_is_only_cited_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'RNN' is not run in the small budget: the paper cites it from others"):
        plan(find_table("voc"), Wish("coco", "small", tmp_path, rows=("RNN",)), 80)
    with pytest.raises(ConfigError, match="voc has no row 'GAN'"):
        plan(find_table("voc"), Wish("coco", "small", tmp_path, rows=("GAN",)), 80)


def test_a_wrong_name_brings_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"Unknown table 'head-coco'\. Did you mean 'heads-coco'\?"):
        find_table("head-coco")


def test_a_table_refuses_claims_about_rows_that_it_has_not() -> None:
    with pytest.raises(ConfigError, match="t has no row 'b'"):
        Table("t", "", "", "coco", "multi-label", ("mAP",), (Row("a"),), "b", Setting("coco"))


@pytest.mark.parametrize("name", NEEDED)
def test_the_list_shows_every_figure_that_the_paper_gives(name: str) -> None:
    table = find_table(name)
    text = "\n".join(describe(table))
    for row in table.rows:
        for metric, value in row.paper.items():
            assert metric in table.metrics
            assert re.search(rf"{re.escape(row.name)}: .*{re.escape(metric)} {value:g}", text), (row.name, metric)
        if not row.paper:
            assert f"{row.name}: not given" in text
    for budget in BUDGETS:
        assert f"takes, {budget}: " in text


def test_the_full_settings_are_the_papers_recipes() -> None:
    recipes = {setting_of(table, "full").recipe for table in TABLES.values()}
    recipes |= {row.recipe for table in TABLES.values() for row in table.rows if row.recipe}
    assert recipes >= {
        "coco",
        "coco-224",
        "coco-640",
        "coco-resnet101",
        "voc",
        "nus-wide-zsl",
        "open-images",
        "imagenet-a1",
        "imagenet-a2",
        "imagenet-softmax",
        "cifar100",
        "stanford-cars",
    }
