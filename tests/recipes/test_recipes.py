from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from mldecoder.errors import ConfigError
from mldecoder.recipes import list_recipes, load_recipe

PAPER = (
    "cifar100", "coco", "coco-224", "coco-640", "coco-resnet101", "imagenet-a1", "imagenet-a2", "imagenet-softmax",
    "nus-wide-zsl", "open-images", "stanford-cars", "voc",
)  # fmt: skip
WITHOUT_FIGURES = {
    "quick": "what it reaches depends on the pictures",
    "quick-plus": "what it reaches depends on the pictures",
    "quick-cpu": "what it reaches depends on the pictures",
    "scenes": "measured with make demo",
    "scenes-zsl": "measured in benchmarks/",
    "coco-zsl": "measured in benchmarks/",
}
COCO: dict[str, object] = {
    "head.kind": "ml-decoder",
    "head.width": 768,
    "image.statistics": "unit",
    "image.resize": "squash",
    "augment.resize": "squash",
    "augment.flip": False,
    "augment.cutout": 0.5,
    "augment.auto": "auto",
    "loss.kind": "asymmetric",
    "loss.gamma_neg": 4,
    "loss.gamma_pos": 0,
    "loss.clip": 0.05,
    "optimiser.kind": "adamw",
    "optimiser.lr": 2e-4,
    "optimiser.weight_decay": 1e-4,
    "training.epochs": 40,
    "training.schedule": "one-cycle",
    "training.warmup": 0.2,
    "training.ema_decay": 0.9997,
    "training.batch_size": 56,
}
A2: dict[str, object] = {
    "backbone.name": "resnet50",
    "backbone.pretrained": False,
    "backbone.options.drop_path_rate": 0.05,
    "head.num_queries": 100,
    "head.width": 768,
    "image.size": 224,
    "image.crop_pct": 0.95,
    "image.statistics": "backbone",
    "augment.resize": "crop",
    "augment.flip": True,
    "augment.auto": "rand",
    "augment.magnitude": 0.7,
    "augment.magnitude_spread": 0.05,
    "augment.mixup": 0.1,
    "augment.cutmix": 1.0,
    "augment.repeats": 3,
    "loss.kind": "bce",
    "loss.target_threshold": 0.2,
    "loss.label_smoothing": 0.0,
    "optimiser.kind": "lamb",
    "optimiser.lr": 5e-3,
    "optimiser.weight_decay": 0.02,
    "training.epochs": 300,
    "training.batch_size": 2048,
    "training.schedule": "cosine",
    "training.warmup": pytest.approx(5 / 300, rel=1e-3),
    "training.ema_decay": None,
    "data.task": "single-label",
}
_80 = {"head.num_queries": 80, "data.options.drop_unlabelled": True}
PINNED: dict[str, dict[str, object]] = {
    "coco": COCO | _80 | {"backbone.name": "tresnet_v2_l", "image.size": 448},
    "coco-224": COCO | _80 | {"backbone.name": "tresnet_v2_l", "image.size": 224},
    "coco-640": COCO | _80 | {"backbone.name": "tresnet_xl", "image.size": 640},
    "coco-resnet101": COCO | _80 | {"backbone.name": "resnet101", "image.size": 448},
    "voc": COCO
    | {"head.num_queries": 20, "backbone.name": "tresnet_v2_l", "image.size": 448}
    | {"data.options.year": 2007, "data.options.val_part": "test"},
    "nus-wide-zsl": {key: value for key, value in COCO.items() if not key.startswith("loss.")}
    | {"head.kind": "zero-shot", "head.group_size": 1, "loss.kind": "bce", "backbone.name": "tresnet_m"}
    | {"image.size": 224, "data.options.nus_labels": "1006", "data.unseen": "nus-wide"},
    "open-images": COCO
    | {"backbone.name": "tresnet_m", "head.num_queries": 100, "head.groups": "random", "image.size": 224}
    | {"loss.gamma_neg": 7, "loss.unknown_weight": 0.1, "training.epochs": 25, "training.batch_size": 256},
    "imagenet-a2": A2,
    "imagenet-a1": A2
    | {"training.epochs": 600, "training.warmup": pytest.approx(5 / 600, rel=1e-3), "augment.mixup": 0.2}
    | {"optimiser.weight_decay": 0.01, "loss.label_smoothing": 0.1},
    "imagenet-softmax": {key: value for key, value in A2.items() if key != "loss.target_threshold"}
    | {"loss.kind": "softmax"},
    "cifar100": {"backbone.name": "swin_large_patch4_window12_384.ms_in22k", "image.size": 384},
    "stanford-cars": {"backbone.name": "tresnet_v2_l", "image.size": 384, "data.task": "single-label"},
}
FIGURES = {
    "coco": {"mAP": "90.0"},
    "coco-224": {"mAP": "85.5"},
    "coco-640": {"mAP": "91.4", "mAP with backbone.name=tresnet_v2_l": "91.1"},
    "coco-resnet101": {"mAP": "87.1"},
    "voc": {"mAP": "96.6"},
    "nus-wide-zsl": {"mAP of unseen labels": "31.1", "mAP of all labels": "19.9"},
    "open-images": {"mAP": "86.7", "mAP with head.num_queries=200": "86.8"},
    "imagenet-a2": {"top1": "80.3"},
    "imagenet-a1": {"top1": "80.7"},
    "imagenet-softmax": {"top1": "80.1"},
    "cifar100": {"top1": "95.1"},
    "stanford-cars": {"top1": "96.41"},
}


def text_of(name: str) -> str:
    return (files("mldecoder.recipes") / f"{name}.yaml").read_text(encoding="utf-8")


def flat(section: Mapping[str, object], above: str = "") -> dict[str, object]:
    """Every value of nested sections under its whole path."""
    found: dict[str, object] = {}
    for key, value in section.items():
        found |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def test_every_result_of_the_paper_has_its_recipe() -> None:
    assert set(PAPER) | set(WITHOUT_FIGURES) <= set(list_recipes())
    assert set(PINNED) == set(FIGURES) == set(PAPER)


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_can_be_read_and_says_what_to_expect(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description.endswith(".")
    assert recipe.expected or name in WITHOUT_FIGURES
    assert not [key for key, figure in recipe.expected.items() if "paper" not in figure and name in PAPER]


@pytest.mark.parametrize("name", PAPER)
def test_a_recipe_holds_the_values_of_its_sources(name: str) -> None:
    held = flat(load_recipe(name).model_dump())
    assert {path: held[path] for path in PINNED[name]} == PINNED[name]


@pytest.mark.parametrize("name", PAPER)
def test_a_recipe_expects_the_figures_of_the_paper(name: str) -> None:
    expected = load_recipe(name).expected
    assert {key: expected[key].split()[0] for key in FIGURES[name]} == FIGURES[name]


SOURCES = ("paper", "scripts", "COCO", "RSB", "timm", "zoo", "our choice")


@pytest.mark.parametrize("name", PAPER)
def test_every_value_of_a_paper_recipe_names_its_source(name: str) -> None:
    sections = yaml.safe_load(text_of(name))
    lines = text_of(name).splitlines()
    for section in ("head", "image", "augment", "loss", "optimiser", "training"):
        start = lines.index(f"{section}:")
        for key in sections[section]:
            (line,) = [line for line in lines[start + 1 : start + 14] if line.startswith(f"  {key}: ")][:1]
            known = (section, key) == ("head", "kind") or any(source in line for source in SOURCES)
            assert known, line


@pytest.mark.parametrize("name", ["coco", "coco-224", "coco-640", "coco-resnet101", "voc", "nus-wide-zsl"])
def test_a_recipe_says_where_the_official_scripts_differ(name: str) -> None:
    text = text_of(name)
    assert "The scripts differ: 1e-4" in text
    assert "plain Adam, so L2, not true decay" in text
    assert "scripts: pct_start 0.2" in text
    assert "scripts: no crops" in text
    assert "scripts: no flips" in text
    assert "ema_decay: 0.9997     # scripts" in text
    assert "The authors' file is gone: pass your own, --init-from" in text


def test_what_the_paper_leaves_open_is_said_to_be_our_choice() -> None:
    for name in ("cifar100", "stanford-cars"):
        assert "our choice" in load_recipe(name).description
    assert "the number is our choice" in text_of("open-images")


def test_the_zero_shot_recipe_and_the_other_tresnet_xl_say_what_the_paper_does_not() -> None:
    assert "is our choice: the paper does not say" in load_recipe("nus-wide-zsl").description
    assert "another network than the authors'" in load_recipe("coco-640").description


def test_single_values_are_overridden() -> None:
    words = ["training.epochs=3", "image.size=64", "head.kind=gap", "data.options={count: 8}", "augment.mixup=0.4"]
    recipe = load_recipe("coco", words)
    assert (recipe.training.epochs, recipe.image.size, recipe.head.kind) == (3, 64, "gap")
    assert recipe.data.options == {"count": 8}
    assert recipe.augment.mixup == 0.4
    assert recipe.training.ema_decay == 0.9997  # the rest stays


def test_numbers_may_be_written_in_the_way_that_yaml_takes_for_text(tmp_path: Path) -> None:
    assert load_recipe("coco", ["optimiser.lr=2e-4"]).optimiser.lr == 2e-4
    file = tmp_path / "mine.yaml"
    file.write_text("optimiser: {lr: 3e-4}\nloss: {kind: asymmetric, clip: 5e-2}\n", encoding="utf-8")
    recipe = load_recipe(file)
    assert (recipe.name, recipe.optimiser.lr) == ("mine", 3e-4)


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("coco", "training.epoch=3", "coco: unknown key 'training.epoch'. Did you mean 'epochs'?"),
        ("coco", "trainin.epochs=3", "coco: unknown key 'trainin'. Did you mean 'training'?"),
        ("coco", "head.num_querys=3", "coco: unknown key 'head.num_querys'. Did you mean 'num_queries'?"),
        ("coco", "augment.mixupp=3", "coco: unknown key 'augment.mixupp'. Did you mean 'mixup'?"),
        ("coco", "loss.gama_neg=3", "Did you mean 'gamma_neg'?"),
        ("coco", "data.options.drop_unlabeled=true", "Did you mean 'drop_unlabelled'?"),
        ("coco", "training.epochs=many", "coco: training.epochs: "),
        ("coco", "training.epochs", "--set takes key=value, such as training.epochs=3, got 'training.epochs'."),
        ("coco", "training.epochs.more=3", "'epochs' holds a value, not a section."),
        ("scenes", "data.unseen=scenes", "data.unseen needs a head that scores labels it never saw."),
        ("scenes", "zero_shot.noise=0.1", "zero_shot are for the zero-shot head. Set head.kind=zero-shot."),
        ("scenes-zsl", "text.encodr=minilm", "unknown key 'text.encodr'. Did you mean 'encoder'?"),
        ("scenes-zsl", "zero_shot.nose=1", "unknown key 'zero_shot.nose'. Did you mean 'noise'?"),
        ("imagenet-a2", "augment.magnitude=7", "imagenet-a2: augment.magnitude: "),
        ("coko", "training.epochs=3", "Unknown recipe 'coko'. Did you mean 'coco'?"),
        ("nowhere.yaml", "training.epochs=3", "There is no recipe file nowhere.yaml."),
    ],
)
def test_a_wrong_key_or_value_is_one_clear_line(name: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(name, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
