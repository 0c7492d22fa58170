"""Pictures that are kept: the same pictures for any number of processes, and the same figures as without keeping."""

import shutil
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
import torch
from accelerate import Accelerator
from PIL import Image

import mldecoder as mld
from mldecoder.config import PreprocessingConfig
from mldecoder.data.dataset import UNKNOWN, ImageSet
from mldecoder.data.device_transforms import DRAWS
from mldecoder.data.pictures import Files
from mldecoder.data.targets import Targets
from mldecoder.errors import ConfigError
from mldecoder.recipes import Recipe, load_recipe
from mldecoder.training import room
from mldecoder.training.console import Display
from mldecoder.training.kept import KeptPictures, keep_pictures, step_draws
from mldecoder.training.loading import Batch, evaluation_batches
from mldecoder.training.order import EpochBatches
from tests.data.picture_files import picture
from tests.training.same import COMPARABLE, TINY, check_each_once, check_same, rows, together
from tests.training.together import Job, read_trace

COUNT, SIZE, BATCH = 22, 32, 8
QUIET = Display(enabled=False)
CROP = ["augment.resize=crop", "augment.cutout=0.3"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    """Pictures of all shapes, one of them broken."""
    root = tmp_path_factory.mktemp("pictures")
    names = [f"{i}.png" for i in range(COUNT)]
    for i, name in enumerate(names):
        picture(root / name, seed=i, size=(20 + 3 * i, 60 - 2 * i))
    (root / "5.png").write_bytes(b"no picture")
    targets = Targets.from_lists(
        [[i % 3] for i in range(COUNT)], num_classes=3, unknown=[[(i + 1) % 3] for i in range(COUNT)]
    )
    return ImageSet(Files(root, names), targets, ("a", "b", "c"))


def recipe_of(*overrides: str) -> Recipe:
    words = [f"image.size={SIZE}", f"training.batch_size={BATCH}", "data.workers=0", "data.keep=device", *overrides]
    return load_recipe("scenes", words)


def kept_of(images: ImageSet, *overrides: str, rank: int = 0, world: int = 1) -> KeptPictures:
    recipe = recipe_of(*overrides)
    order = EpochBatches(
        COUNT, BATCH, seed=recipe.training.seed, rank=rank, world=world, accumulate=recipe.training.accumulate
    )
    preprocessing = PreprocessingConfig(size=(SIZE, SIZE))
    kept = keep_pictures(images, images, recipe, preprocessing, order, Accelerator(cpu=True))
    assert kept is not None
    kept.fill(QUIET)
    return kept


def seen(kept: KeptPictures, epoch: int = 1, step: int = 0) -> list[Batch]:
    """The rest of an epoch."""
    kept.order.set_place(epoch, step)
    return list(islice(kept.batches(), len(kept.order)))


def check_equal(found: list[Batch], expected: list[Batch]) -> None:
    for name in ("images", "targets", "indices", "broken"):
        both = [torch.cat([getattr(batch, name) for batch in batches]) for batches in (found, expected)]
        assert torch.equal(*both), name


def test_kept_in_memory_or_on_the_device_pictures_are_the_same(images: ImageSet) -> None:
    check_equal(seen(kept_of(images, *CROP, "data.keep=memory")), seen(kept_of(images, *CROP)))


def test_what_varies_is_a_function_of_the_place(images: ImageSet) -> None:
    kept = kept_of(images, *CROP)
    whole = seen(kept)
    check_equal(seen(kept_of(images, *CROP), step=1), whole[1:])
    check_equal(seen(kept), whole)
    again, other = (torch.cat([batch.indices for batch in batches]) for batches in (whole, seen(kept, epoch=2)))
    assert not torch.equal(again, other)


@pytest.mark.parametrize("goes", [1, 2])
def test_two_processes_see_the_pictures_of_one(images: ImageSet, goes: int) -> None:
    words = [*CROP, f"training.accumulate={goes}"]
    shares = [seen(kept_of(images, *words, rank=rank, world=2)) for rank in (0, 1)]
    whole = seen(kept_of(images, *CROP))
    joined = [b for step in range(len(whole)) for share in shares for b in share[step * goes : (step + 1) * goes]]
    check_equal(joined, whole)


def test_numbers_differ_from_step_to_step_and_from_those_of_the_order() -> None:
    found = [step_draws(0, epoch, step, 4) for epoch in range(3) for step in range(3)]
    assert len({draws.tobytes() for draws in found}) == 9
    assert found[0].shape == (4, DRAWS)
    order = np.random.default_rng([0, 0]).random(4 * DRAWS)  # a trailing zero changes no numpy seed
    assert not np.array_equal(found[0].ravel(), order)


def test_whole_pictures_come_as_pillow_squashes_them(images: ImageSet) -> None:
    for batch in seen(kept_of(images, "augment.flip=false", "augment.vertical_flip=false")):
        for i, found, broken in zip(batch.indices.tolist(), batch.images, batch.broken, strict=True):
            if broken:
                continue
            with Image.open(Path(images.pictures.root) / images.pictures.name(i)) as source:  # type: ignore[attr-defined]
                expected = np.array(source.resize((SIZE, SIZE), Image.Resampling.BILINEAR))
            assert np.array_equal(found.permute(1, 2, 0).numpy(), expected)


def test_a_broken_picture_is_blank_and_its_targets_unknown(images: ImageSet) -> None:
    found, kept = 0, kept_of(images, *CROP)
    for batch in [batch for epoch in range(6) for batch in seen(kept, epoch)]:
        for i in range(BATCH):
            broken = int(batch.indices[i]) == 5
            found += broken
            assert bool(batch.broken[i]) == broken
            assert (batch.images[i].max() == 0) == broken
            row = np.full(3, UNKNOWN) if broken else images.targets.row(int(batch.indices[i]))
            assert batch.targets[i].tolist() == row.tolist()
    assert found


@pytest.mark.parametrize("size", [SIZE, 40])
def test_evaluation_pictures_are_those_of_the_evaluation_transform(images: ImageSet, size: int) -> None:
    kept = kept_of(images, f"evaluation.size={size}")
    preprocessing = PreprocessingConfig(size=(size, size))
    plain = evaluation_batches(
        images, preprocessing, batch_size=BATCH, device=torch.device("cpu"), workers=0, max_broken=1
    )
    first = list(kept.evaluation(QUIET))
    expected = list(plain)
    assert [len(batch.indices) for batch in first] == [len(batch.indices) for batch in expected]
    check_equal(first, expected)
    check_equal(list(kept.evaluation(QUIET)), expected)


@pytest.mark.parametrize("wish", ["augment.auto=rand", "augment.colour=0.2"])
def test_what_the_device_cannot_do_is_refused_in_one_line(wish: str) -> None:
    with pytest.raises(ConfigError, match=rf"got {wish}\. Leave that out, or set data\.keep=none") as error:
        recipe_of(wish)
    assert "\n" not in str(error.value)
    recipe_of(wish, "data.keep=none")


def test_what_does_not_fit_is_refused_with_its_size(images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = kept_of(images).needed()
    assert needed == 3 * SIZE * SIZE * 2 * COUNT
    monkeypatch.setattr(room, "free_memory", lambda _: 2 * needed)
    kept_of(images)
    monkeypatch.setattr(room, "free_memory", lambda _: 2 * needed - 1)
    with pytest.raises(ConfigError, match=r"needs 0\.0 GB, at most half of the 0\.0 GB free on cpu .* data\.keep=none"):
        kept_of(images)


def test_a_container_may_allow_less_than_the_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    cpu = torch.device("cpu")
    assert room.free_memory(cpu, tmp_path) == 1000
    for name, text in {"max": "900", "current": "500", "stat": "anon 400\ninactive_file 100"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert room.free_memory(cpu, tmp_path) == 500
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert room.free_memory(cpu, tmp_path) == 250
    (tmp_path / "memory.max").write_text("max")
    assert room.free_memory(cpu, tmp_path) == 500


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process, undisturbed."""
    folder = tmp_path_factory.mktemp("one") / "run"
    mld.train(recipe="scenes", output=folder, overrides=[*COMPARABLE, *CROP, "data.keep=device"], quiet=True)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes, one keeping on the device, the other in memory, and what the first was in its second epoch."""
    root = tmp_path_factory.mktemp("two")
    jobs = [Job(str(root / k), (*COMPARABLE, *CROP, f"data.keep={k}"), copy_at=8) for k in ("device", "memory")]
    together(jobs, root, processes=2)
    return root


@pytest.mark.parametrize("keep", ["device", "memory"])
def test_two_processes_end_like_one(one: Path, two: Path, keep: str) -> None:
    check_same(two / keep, one)
    check_each_once(read_trace(two / keep))


def test_what_two_processes_saved_in_the_middle_of_an_epoch_one_resumes(one: Path, two: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(two / "device-copy", folder)
    assert len(rows(folder)) == 1
    mld.train(output=folder, resume=True, quiet=True)
    check_same(folder, one)


def test_an_unvaried_run_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    plain = [*TINY, "augment.flip=false", "augment.vertical_flip=false", "data.workers=0"]
    for keep in ("none", "device"):
        mld.train(recipe="scenes", output=tmp_path / keep, overrides=[*plain, f"data.keep={keep}"], quiet=True)
    check_same(tmp_path / "device", tmp_path / "none", exactly=True)


def test_broken_pictures_are_named_and_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("train", "val"):
        for i, label in enumerate(("cat", "dog")):
            for number in range(4):
                picture(tmp_path / "data" / part / label / f"{number}.jpg", seed=10 * i + number)
        (tmp_path / "data" / part / "cat" / "0.jpg").write_bytes(b"")
    words = ["backbone.name=test_resnet", "backbone.pretrained=false", "image.size=32", "head.width=16"]
    words += ["head.ff_width=16", "training.epochs=1", "training.batch_size=4", "data.workers=0", "data.max_broken=1"]
    mld.train(tmp_path / "data", output=tmp_path / "run", overrides=[*words, "augment.auto=none", "data.keep=memory"])
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.endswith("; skipped")]
    assert [line.split(":")[0] for line in lines] == ["train/cat/0.jpg", "val/cat/0.jpg"], said
    assert "Training pictures: 8 decoded in" in said


@pytest.mark.slow
def test_varied_on_the_device_a_model_learns_as_well(tmp_path: Path) -> None:
    words = ["data.options.count=800", "training.epochs=3", "augment.resize=crop", "augment.min_scale=0.7"]
    losses, figures = [], []
    for keep in ("none", "device"):
        run = mld.train(recipe="scenes", output=tmp_path / keep, overrides=[*words, f"data.keep={keep}"], quiet=True)
        losses.append(run.history()[-1]["loss"])
        figures.append(run.metrics["mAP"])
    assert losses[1] == pytest.approx(losses[0], rel=0.1)
    assert figures[1] == pytest.approx(figures[0], abs=5)
