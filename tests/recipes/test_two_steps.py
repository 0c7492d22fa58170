"""Every recipe trains: its own backbone, loss, optimiser and augmentations on a few small pictures."""

import gc
import json
import math
import shutil
from pathlib import Path

import pytest

from mldecoder.recipes import list_recipes, load_recipe
from mldecoder.training.api import train
from tests.data.picture_files import picture

SMALLEST = {"tresnet": 64, "swin": 96, "resnet": 32, "test": 32, "mobilenetv2": 32}
"""Side of the smallest pictures that a family of backbones takes here."""


def class_folders(root: Path) -> Path:
    for part, count in (("train", 4), ("val", 1)):
        for number, label in enumerate(("cat", "dog")):
            for i in range(count):
                picture(root / part / label / f"{i}.png", seed=10 * number + i, size=(40, 32))
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_trains_two_steps(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    family = next(family for family in SMALLEST if recipe.backbone.name.startswith(family))
    overrides = [
        "backbone.pretrained=false",
        f"image.size={SMALLEST[family]}",
        "training.epochs=1",
        "training.batch_size=4",
        "training.accumulate=1",
        "data.workers=0",
    ]
    if recipe.head.kind == "zero-shot":
        overrides += ["data.unseen=scenes"]
    else:
        overrides += ["head.num_queries=null"]  # the few labels here are fewer than the recipe's queries
    if recipe.data.task == "single-label":
        source, options = str(class_folders(tmp_path / "pictures")), "{}"
    else:
        source, options = "scenes", "{count: 8}"
    run = train(
        source,
        recipe=name,
        output=tmp_path / "run",
        overrides=[*overrides, f"data.options={options}"],
        quiet=True,
    )
    (epoch,) = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    shutil.rmtree(run.path)  # some hold gigabytes
    gc.collect()
    assert math.isfinite(epoch["loss"])
    assert 0 <= run.metrics["top1" if recipe.data.task == "single-label" else "mAP"] <= 100
    assert ("seen_mAP" in run.metrics) == (recipe.data.unseen is not None)
