"""Training with the loss in blocks against training with all logits."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import mldecoder as mld
from mldecoder.errors import ConfigError
from mldecoder.recipes import load_recipe
from mldecoder.training import grouped
from mldecoder.training.grouped import grouped_training

TINY = [
    "data.options.count=60",
    "image.size=32",
    "head.width=16",
    "head.ff_width=16",
    "head.num_queries=5",
    "training.epochs=2",
    "training.batch_size=20",
    "training.accumulate=2",
    "optimiser.kind=sgd",  # Adam would make steps of rounding errors where a gradient is zero
    "optimiser.lr=0.0001",
]


def weights_after(folder: Path, wish: str) -> dict[str, torch.Tensor]:
    overrides = [*TINY, f"training.grouped_loss={wish}"]
    mld.train("scenes", recipe="scenes", output=folder, overrides=overrides, quiet=True)
    return load_file(folder / "last" / "model.safetensors")


def model() -> mld.Classifier:
    return mld.create_model("test_resnet", num_classes=12, head={"kind": "ml-decoder", "width": 16, "ff_width": 16})


def test_the_weights_are_those_of_training_with_all_logits(tmp_path: Path) -> None:
    blocks, dense = (weights_after(tmp_path / wish, wish) for wish in ("true", "false"))
    for key, value in dense.items():
        torch.testing.assert_close(blocks[key], value, rtol=1e-4, atol=1e-6, msg=key)


def test_it_is_taken_unasked_from_very_many_labels_on(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("scenes", [])
    assert grouped_training(model(), recipe) is None
    monkeypatch.setattr(grouped, "MANY", 12)
    assert grouped_training(model(), recipe) is not None
    assert grouped_training(model(), load_recipe("scenes", ["training.grouped_loss=false"])) is None
    assert grouped_training(model(), load_recipe("scenes", ["training.compile=true"])) is None


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("cifar100", [], "got loss.kind=softmax"),
        ("scenes", ["training.compile=true"], "got training.compile=true"),
    ],
)
def test_where_it_cannot_work_a_wish_is_refused(recipe: str, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        grouped_training(model(), load_recipe(recipe, ["training.grouped_loss=true", *overrides]))
