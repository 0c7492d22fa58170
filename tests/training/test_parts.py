"""The small parts of training: averages, mixing, schedules, groups, checks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mldecoder as mld
from mldecoder.data.dataset import ImageSet
from mldecoder.data.detect import open_dataset
from mldecoder.data.transforms import AugmentConfig
from mldecoder.errors import ConfigError, TrainingError
from mldecoder.recipes import Recipe, load_recipe
from mldecoder.recipes.recipe import OptimiserSettings, TrainingSettings
from mldecoder.training.checks import check
from mldecoder.training.ema import Ema
from mldecoder.training.mix import mix
from mldecoder.training.optim import build_optimiser, build_schedule, parameter_groups


@pytest.fixture
def model() -> mld.Classifier:
    return mld.create_model("test_resnet", 5, head={"kind": "ml-decoder", "width": 16, "ff_width": 16})


def test_the_average_follows_the_formula(model: mld.Classifier) -> None:
    ema = Ema(model, decay=0.9)
    slow = {key: value.clone().double() for key, value in model.state_dict().items()}
    for step in range(30):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        ema.update(model, step)
        decay = min(0.9, (1 + step) / (10 + step))
        for key, value in model.state_dict().items():
            slow[key] = (
                decay * slow[key] + (1 - decay) * value.double() if value.is_floating_point() else value.double()
            )
    for key, value in ema.model.state_dict().items():
        torch.testing.assert_close(value.double(), slow[key], rtol=1e-4, atol=1e-5)
    assert not any(parameter.requires_grad for parameter in ema.model.parameters())


def test_biases_and_norms_do_not_decay_and_factors_reach_their_part(model: mld.Classifier) -> None:
    settings = OptimiserSettings(lr=1.0, weight_decay=0.1, backbone_factor=0.5, head_factor=2.0)
    groups = {str(group["name"]): group for group in parameter_groups(model, settings)}
    assert {name: (g["lr"], g["weight_decay"]) for name, g in groups.items()} == {
        "backbone weights": (0.5, 0.1),
        "backbone vectors": (0.5, 0.0),
        "head weights": (2.0, 0.1),
        "head vectors": (2.0, 0.0),
    }
    grouped = [p for group in groups.values() for p in group["params"]]  # type: ignore[attr-defined]
    assert len(grouped) == len({id(p) for p in grouped}) == len(list(model.parameters()))


def test_weight_decay_is_true_decay(model: mld.Classifier) -> None:
    optimiser = build_optimiser(model, OptimiserSettings(lr=0.1, weight_decay=0.5))
    weight = model.head.decoder.embed.weight  # type: ignore[union-attr]
    before = weight.detach().clone()  # type: ignore[operator,union-attr]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    torch.testing.assert_close(weight.detach(), before * (1 - 0.1 * 0.5))  # type: ignore[operator,union-attr]


@pytest.mark.parametrize("kind", ["adamw", "lamb", "sgd", "adam"])
def test_optimisers_come_by_name(model: mld.Classifier, kind: str) -> None:
    build_optimiser(model, OptimiserSettings(kind=kind))
    with pytest.raises(ConfigError, match=r"optimiser\.kind"):
        build_optimiser(model, OptimiserSettings(kind="adamm"))


@pytest.mark.parametrize("schedule", ["one-cycle", "cosine", "constant"])
def test_schedules_keep_the_proportion_of_the_groups(model: mld.Classifier, schedule: str) -> None:
    optimiser = build_optimiser(model, OptimiserSettings(lr=1.0, backbone_factor=0.1))
    settings = TrainingSettings(schedule=schedule, warmup=0.2)  # type: ignore[arg-type]
    steps = build_schedule(optimiser, settings, 50)
    rates = []
    for _ in range(50):
        rates.append([group["lr"] for group in optimiser.param_groups])
        optimiser.step()
        steps.step()
    ratios = {round(row[-1] / row[0], 6) for row in rates}
    assert ratios == {10.0}
    heights = [row[-1] for row in rates]
    assert max(heights) == pytest.approx(1.0, rel=0.01)
    assert heights[0] < 0.2
    if schedule != "constant":
        assert heights[-1] < 0.02


@given(kind=st.sampled_from(["mixup", "cutmix"]), seed=st.integers(0, 50))
def test_mixing_mixes_targets_as_it_mixes_pictures(kind: str, seed: int) -> None:
    torch.manual_seed(seed)
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 8, 8)  # a picture is its number everywhere
    targets = torch.eye(4)
    targets[0, 3] = -1
    mixed, labels = mix(images, targets, AugmentConfig.model_validate({kind: 1.0}))
    share = mixed.mean(dim=(1, 2, 3))  # between the number and that of its partner
    partner = torch.tensor([3.0, 2.0, 1.0, 0.0])
    own = torch.arange(4.0)
    expected = (share - partner) / (own - partner)
    torch.testing.assert_close(labels.diagonal()[1:3], expected[1:3], rtol=1e-4, atol=1e-4)
    assert labels[0, 3] == labels[3, 3] == -1  # unknown in one is unknown in the mixture
    known = labels[1]
    torch.testing.assert_close(known.sum(), torch.tensor(1.0))


@given(seed=st.integers(0, 50), height=st.integers(2, 9), width=st.integers(2, 9), count=st.integers(4, 6))
def test_a_mosaic_shows_four_pictures_and_what_any_of_them_shows(
    seed: int, height: int, width: int, count: int
) -> None:
    torch.manual_seed(seed)
    images = torch.arange(float(count)).view(count, 1, 1, 1).expand(count, 1, height, width)  # its number everywhere
    targets = torch.eye(count)
    targets[1, 1], targets[2, 3] = -1, -1
    mosaics, labels = mix(images, targets, AugmentConfig(mosaic=1.0))
    assert mosaics.shape == images.shape
    for place in range(count):
        seen = mosaics[place].unique().long()
        assert len(seen) == 4
        theirs = targets[seen]
        for label in range(count):
            values = set(theirs[:, label].tolist())
            assert labels[place, label] == (1 if 1 in values else -1 if -1 in values else 0)


def test_as_many_pictures_become_mosaics_as_asked_for() -> None:
    images = torch.arange(400.0).view(400, 1, 1, 1).expand(400, 1, 4, 4)
    mosaics, labels = mix(images, torch.eye(400), AugmentConfig(mosaic=0.25))
    changed = mosaics.amax(dim=(1, 2, 3)) != mosaics.amin(dim=(1, 2, 3))
    assert 50 < int(changed.sum()) < 150
    assert torch.equal(labels.sum(dim=1), torch.where(changed, 4.0, 1.0))


def test_without_mixing_nothing_changes() -> None:
    images, targets = torch.rand(2, 3, 4, 4), torch.eye(2)
    assert mix(images, targets, AugmentConfig()) == (images, targets)


class TestChecksBeforeTraining:
    @pytest.fixture
    def scenes(self) -> ImageSet:
        return open_dataset("scenes", options={"count": 40}).train

    @pytest.fixture
    def recipe(self) -> Recipe:
        return load_recipe("scenes", ["training.batch_size=8"])

    def test_labels_that_never_occur_are_named(self, scenes: ImageSet, recipe: Recipe) -> None:
        without = [i for i in range(len(scenes)) if scenes.targets.row(i)[0] == 0]
        warnings = check(scenes.select(without), scenes, recipe, "multi-label").warnings
        assert any("never occur in the training part" in line and scenes.labels[0] in line for line in warnings)

    def test_all_zero_targets_are_an_error(self, scenes: ImageSet, recipe: Recipe) -> None:
        empty = scenes.keep_labels([scenes.labels[0]])
        without = [i for i in range(len(empty)) if empty.targets.row(i)[0] == 0]
        with pytest.raises(TrainingError, match="All training targets are zero"):
            check(empty.select(without), empty, recipe, "multi-label")

    @pytest.mark.parametrize("change", ["optimiser.lr=0", "optimiser.head_factor=0"])
    def test_a_head_that_cannot_learn_is_an_error(self, scenes: ImageSet, change: str) -> None:
        with pytest.raises(TrainingError, match="learning rate of the head is 0"):
            check(scenes, scenes, load_recipe("scenes", [change]), "multi-label")

    def test_softmax_for_several_labels_is_an_error(self, scenes: ImageSet) -> None:
        with pytest.raises(TrainingError, match="one label a picture"):
            check(scenes, scenes, load_recipe("scenes", ["loss.kind=softmax"]), "multi-label")

    def test_a_set_smaller_than_a_batch_is_a_warning(self, scenes: ImageSet) -> None:
        warnings = check(scenes, scenes, load_recipe("scenes", ["training.batch_size=64"]), "multi-label").warnings
        assert any("do not fill one batch" in line for line in warnings)
