"""Batch-norm statistics are taken anew, over the pictures of the training part as the evaluation shows them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import mldecoder as mld
from mldecoder.data.detect import open_dataset
from mldecoder.data.images import TorchImages
from mldecoder.data.transforms import evaluation_transform, normalise
from mldecoder.errors import ConfigError
from mldecoder.model import Classifier
from mldecoder.recipes import load_recipe
from mldecoder.training.console import Display
from mldecoder.training.norms import measure_norms, settle_norms
from mldecoder.training.order import EpochBatches
from tests.training.same import TINY, rows, together, weights
from tests.training.together import Job

SETTLED = "training.settle_norms=true"
COUNT, BATCH, EPOCHS = 65, 12, 2  # as in TINY
CROP = ["augment.resize=crop", "augment.cutout=0.3"]


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4, momentum=0.3),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Conv2d(4, 2, 1),
        nn.BatchNorm2d(2),
    )


def is_statistic(key: str) -> bool:
    return key.endswith(("running_mean", "running_var"))


@given(count=st.integers(1, 5), size=st.integers(2, 6))
def test_statistics_are_the_means_of_those_of_the_batches(count: int, size: int) -> None:
    model = small()
    batches = [torch.randn(size, 3, 5, 5) + i for i in range(count)]
    measure_norms(model, batches)
    found = [[], []]  # type: list[list[tuple[Tensor, Tensor]]]
    for images in batches:  # by hand, without what drops
        out = model[0](images)
        for which, norm in enumerate((model[1], model[5])):
            flat = out.transpose(0, 1).flatten(1)
            found[which].append((flat.mean(dim=1), flat.var(dim=1)))
            deviation = out - flat.mean(dim=1)[:, None, None]
            out = deviation / (flat.var(dim=1, correction=0)[:, None, None] + norm.eps).sqrt()
            out = model[4](out.relu()) if which == 0 else out
    for norm, of_batches in zip((model[1], model[5]), found, strict=True):
        mean, var = (torch.stack(parts).mean(dim=0) for parts in zip(*of_batches, strict=True))
        torch.testing.assert_close(norm.running_mean, mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norm.running_var, var, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_all_but_the_statistics_is_as_before(training: bool) -> None:
    model = small().train(training)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    measure_norms(model, [torch.randn(4, 3, 5, 5)])
    assert all(module.training == training for module in model.modules())
    assert [model[1].momentum, model[5].momentum] == [0.3, 0.1]
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]) != (is_statistic(key) or key.endswith("num_batches_tracked")), key


def test_a_model_without_batch_norm_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*TINY, "backbone.name=test_vit", "backbone.options={}"]
    recipe, images = load_recipe("scenes", words), open_dataset("scenes", options={"count": COUNT}).train
    model = mld.create_model("test_vit", labels=images.labels)
    monkeypatch.setattr(Classifier, "forward", None)
    settle_norms(model, images, recipe, Accelerator(cpu=True), Display(enabled=False))


def test_models_in_parts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"parallel=fsdp does not go with training\.settle_norms=true"):
        load_recipe("scenes", [SETTLED, "training.parallel=fsdp"])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("plain") / "run")


def trained(folder: Path, *overrides: str) -> Path:
    mld.train(recipe="scenes", output=folder, overrides=[*TINY, *overrides], quiet=True)
    return folder


def expected(folder: Path, world: int = 1, size: int = 32) -> dict[str, Tensor]:
    """Statistics of a saved model, the slow way: picture by picture, the shares of all processes one after another."""
    model = mld.load(folder).eval()
    preprocessing = model.config.preprocessing.model_copy(update={"size": (size, size)})
    images = TorchImages(open_dataset("scenes", options={"count": COUNT}).train, evaluation_transform(preprocessing))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
            module.train()
    with torch.no_grad():
        for indices in shares(world):
            batch = torch.stack([images[i]["image"] for i in indices])
            model(normalise(batch, preprocessing))
    return {key: value for key, value in model.state_dict().items() if is_statistic(key)}


def shares(world: int) -> Iterator[list[int]]:
    for rank in range(world):
        order = EpochBatches(COUNT, BATCH, seed=0, rank=rank, world=world)
        order.set_place(EPOCHS)
        for keys in order:
            yield [index for _, _, index in keys]


def check_settled(run: Path, world: int = 1, size: int = 32) -> None:
    for part in ("last", "ema"):
        found, wanted = weights(run / part), expected(run / part, world, size)
        assert wanted
        for key, value in wanted.items():
            torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5, msg=f"{part}: {key}")


@pytest.mark.parametrize("keep", ["none", "device"])
def test_a_run_ends_with_settled_statistics_and_the_same_weights(plain: Path, tmp_path: Path, keep: str) -> None:
    run = trained(tmp_path / "run", SETTLED, f"data.keep={keep}")
    check_settled(run)
    if keep == "device":  # its pictures are flipped by other numbers
        return
    for part in ("last", "ema"):
        before, after = weights(plain / part), weights(run / part)
        for key, value in before.items():
            if not key.endswith("num_batches_tracked"):
                assert torch.equal(after[key], value) != is_statistic(key), key
    assert rows(run)[0] == rows(plain)[0]  # only the last evaluation sees them
    assert rows(run)[1]["loss"] == rows(plain)[1]["loss"]


@pytest.mark.parametrize("wish", ["image.resize=crop", "evaluation.size=48"])
def test_pictures_that_are_kept_in_another_form_are_read_anew(tmp_path: Path, wish: str) -> None:
    run = trained(tmp_path / "run", SETTLED, "data.keep=device", wish)
    check_settled(run, size=48 if "48" in wish else 32)


def test_what_is_saved_scores_what_the_last_evaluation_says(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", SETTLED, *CROP, "data.keep=device")
    last = rows(run)[-1]
    assert mld.evaluate(mld.load(run / "last"), "scenes", overrides=TINY)["mAP"] == pytest.approx(last["mAP"], abs=1e-6)


def test_two_processes_measure_their_shares(tmp_path: Path) -> None:
    jobs = [Job(str(tmp_path / keep), (*TINY, SETTLED, f"data.keep={keep}")) for keep in ("none", "device")]
    together(jobs, tmp_path, processes=2)
    for job in jobs:
        check_settled(Path(job.output), world=2)
