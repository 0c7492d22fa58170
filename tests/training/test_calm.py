"""Calm last epochs: pictures whole and only flipped, whichever way they are read."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

import mldecoder as mld
from mldecoder.config import PreprocessingConfig
from mldecoder.data.dataset import ImageSet
from mldecoder.data.device_transforms import squash
from mldecoder.data.images import TorchImages
from mldecoder.data.pictures import Files
from mldecoder.data.targets import Targets
from mldecoder.data.transforms import AugmentConfig, training_transform
from mldecoder.errors import ConfigError
from mldecoder.recipes import load_recipe
from mldecoder.training import loop
from mldecoder.training.console import Display
from mldecoder.training.kept import keep_pictures
from mldecoder.training.loading import Batch, training_batches
from mldecoder.training.mix import mix
from mldecoder.training.order import EpochBatches
from tests.data.picture_files import picture
from tests.training.same import TINY

COUNT, SIZE, BATCH = 12, 32, 6
WILD = AugmentConfig(min_scale=0.3, flip=False, cutout=0.4, mixup=1.0, cutmix=1.0, mosaic=0.5, calm=1)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    root = tmp_path_factory.mktemp("pictures")
    names = [f"{i}.png" for i in range(COUNT)]
    for i, name in enumerate(names):
        picture(root / name, seed=i, size=(40 + 3 * i, 60 - 2 * i))
    return ImageSet(Files(root, names), Targets.from_lists([[0]] * COUNT, num_classes=1), ("a",))


def order_of(epoch: int) -> EpochBatches:
    order = EpochBatches(COUNT, BATCH, seed=0)
    order.set_place(epoch)
    return order


def by_picture(batches: list[Batch]) -> Tensor:
    """The pictures in the order of the set."""
    indices = torch.cat([batch.indices for batch in batches])
    return torch.cat([batch.images for batch in batches])[indices.argsort()]


@given(epochs=st.integers(1, 20), calm=st.integers(0, 25))
def test_the_last_epochs_are_calm_and_the_others_are_not(epochs: int, calm: int) -> None:
    augment = WILD.model_copy(update={"calm": calm})
    found = [augment.in_epoch(epoch, epochs) is not augment for epoch in range(epochs)]
    assert sum(found) == min(calm, epochs)
    assert found == sorted(found)


def test_without_calm_no_epoch_is_not_even_one_behind_the_last() -> None:
    augment = AugmentConfig(cutout=0.4)
    assert augment.in_epoch(5, epochs=3) is augment


@pytest.mark.parametrize(("flip", "vertical"), [(True, False), (False, True)])
def test_flips_remain_and_nothing_else(flip: bool, vertical: bool) -> None:
    wild = WILD.model_copy(
        update={"flip": flip, "vertical_flip": vertical, "auto": "rand", "colour": 0.3, "repeats": 2}
    )
    whole = AugmentConfig(resize="squash", flip=flip, vertical_flip=vertical, repeats=2, calm=1)
    assert wild.calmed() == whole
    batch, targets = torch.rand(4, 3, 8, 8), torch.ones(4, 1)
    shown, told = mix(batch, targets, wild.calmed())
    assert shown is batch
    assert told is targets


@pytest.mark.parametrize("workers", [0, 1])
def test_pictures_that_are_read_anew_are_whole_from_that_epoch_on(images: ImageSet, workers: int) -> None:
    varied, calm = (TorchImages(images, training_transform(augment, (SIZE, SIZE))) for augment in (WILD, WILD.calmed()))
    order = order_of(0)
    batches = training_batches(varied, order, torch.device("cpu"), workers, calm=(calm, 1))
    expected = torch.stack([torch.from_numpy(squashed(images, i)) for i in range(COUNT)])
    seen = []
    for epoch in (0, 1):  # one iterator for both, as in a run
        order.set_place(epoch)
        seen.append(by_picture(list(islice(batches, len(order)))))
    assert not (seen[0] == expected).flatten(1).all(dim=1).any()
    assert torch.equal(seen[1], expected)


@pytest.mark.parametrize("keep", ["memory", "device"])
def test_kept_pictures_are_whole_from_that_epoch_on(images: ImageSet, keep: str) -> None:
    words = ["augment.resize=crop", "augment.cutout=0.4", "augment.flip=false", "augment.vertical_flip=false"]
    words += [f"image.size={SIZE}", "data.workers=0", f"data.keep={keep}", "training.epochs=3", "augment.calm=2"]
    recipe, order = load_recipe("scenes", words), order_of(0)
    preprocessing = PreprocessingConfig(size=(SIZE, SIZE))
    kept = keep_pictures(images, images, recipe, preprocessing, order, Accelerator(cpu=True))
    assert kept is not None
    assert kept.canvas == (39, 39)  # as for crops, which come first
    kept.fill(Display(enabled=False))
    seen = []
    for epoch in range(3):
        order.set_place(epoch)
        seen.append(by_picture(list(islice(kept.batches(), len(order)))))
    canvases = torch.stack([squash(opened(images, i), (39, 39), "bicubic") for i in range(COUNT)])
    expected = torch.nn.functional.interpolate(canvases.float(), (SIZE, SIZE), mode="bilinear")
    assert (seen[1].float() - expected).abs().max() <= 0.51  # rounded, once
    assert torch.equal(seen[1], seen[2])
    assert not (seen[0] == seen[1]).flatten(1).all(dim=1).any()


@dataclass
class Mixing:
    """Notes how each batch was to be mixed."""

    seen: list[AugmentConfig]

    def __call__(self, pictures: Tensor, targets: Tensor, augment: AugmentConfig) -> tuple[Tensor, Tensor]:
        self.seen.append(augment)
        return mix(pictures, targets, augment)


@pytest.mark.parametrize("keep", ["none", "device"])
def test_a_run_mixes_nothing_in_its_calm_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str) -> None:
    mixing = Mixing([])
    monkeypatch.setattr(loop, "mix", mixing)
    words = [*TINY, "augment.mixup=1.0", "augment.mosaic=0.5", "augment.calm=1", f"data.keep={keep}"]
    mld.train(recipe="scenes", output=tmp_path / "run", overrides=words, quiet=True)
    assert [augment.mosaic for augment in mixing.seen] == [0.5] * 5 + [0.0] * 5
    assert [augment.mixup for augment in mixing.seen] == [1.0] * 5 + [0.0] * 5


def test_a_negative_number_of_epochs_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"augment\.calm"):
        load_recipe("scenes", ["augment.calm=-1"])


def opened(images: ImageSet, i: int) -> Image.Image:
    return Image.open(images.pictures.root / images.pictures.name(i)).convert("RGB")  # type: ignore[attr-defined]


def squashed(images: ImageSet, i: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The whole picture by Pillow alone: ``(3, h, w)``."""
    return np.array(opened(images, i).resize((SIZE, SIZE), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
