"""Batches for training and evaluation: decoding and variation in worker processes."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset

from mldecoder.config import PreprocessingConfig
from mldecoder.data.dataset import Arrays, ImageSet
from mldecoder.data.images import BrokenLog, Item, TorchImages, why_broken
from mldecoder.data.pictures import Picked, shard_windows
from mldecoder.data.transforms import evaluation_transform, training_transform
from mldecoder.errors import StorageError
from mldecoder.recipes import Recipe
from mldecoder.training.ahead import with_shards_ahead
from mldecoder.training.interrupts import deaf_children, end_in_silence
from mldecoder.training.order import EpochBatches, Key, seed_of

__all__ = [
    "Batch",
    "VariedImages",
    "evaluation_batches",
    "in_order",
    "note_broken",
    "training_batches",
    "varied_batches",
    "workers_for",
]

_Item = TypeVar("_Item")
_Joined = TypeVar("_Joined")


@dataclass(frozen=True)
class Batch:
    """Some pictures on their way: uint8 ``(b, 3, h, w)``, targets ``(b, n)``, and which ones they are."""

    images: Tensor
    targets: Tensor
    indices: Tensor
    broken: Tensor

    def pin_memory(self) -> "Batch":
        """A copy that a GPU can fetch while the host goes on; the loader asks for it."""
        return Batch(*(part.pin_memory() for part in (self.images, self.targets, self.indices, self.broken)))

    def without_images(self) -> "Batch":
        """What is needed once the pictures were seen: they are large, and may be on the device."""
        return replace(self, images=self.images[:0].clone())


class VariedImages(Dataset[Item]):
    """Pictures whose variation is a function of seed, epoch and place in the epoch.

    Torch's generator is put back afterwards, so that loading in the main process disturbs nobody.

    Args:
        images: The pictures, varied by chance.
        seed: Seed of the chance.
        calm: The same pictures as they come from an epoch on, and that epoch.
    """

    def __init__(self, images: TorchImages, seed: int, calm: tuple[TorchImages, int] | None = None) -> None:
        self.images = images
        self.seed = seed
        self.calm = calm

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, key: Key) -> Item:
        epoch, place, index = key
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed_of(self.seed, epoch, place))
            if self.calm is not None and epoch >= self.calm[1]:
                return self.calm[0][index]
            return self.images[index]


def workers_for(image_set: ImageSet, device: torch.device, wish: int | None) -> int:
    """How many processes decode pictures: few where the CPU computes too, else nearly all cores.

    A worker on every core slows the process that launches the device's kernels.
    """
    if wish is not None:
        return wish
    pictures = image_set.pictures
    if isinstance(pictures.pictures if isinstance(pictures, Picked) else pictures, Arrays):  # nothing to decode
        return 0 if device.type == "cpu" else min(4, os.cpu_count() or 1)
    return 1 if device.type == "cpu" else max(1, min(16, (os.cpu_count() or 1) - 4))


def varied_batches(
    train: ImageSet, recipe: Recipe, preprocessing: PreprocessingConfig, order: EpochBatches, device: torch.device
) -> Iterator[Batch]:
    """Batches without end of a recipe: varied as it says, and whole pictures from its first calm epoch on."""
    images, calm = (
        TorchImages(
            train, training_transform(augment, preprocessing.size, preprocessing.interpolation), recipe.data.max_broken
        )
        for augment in (recipe.augment, recipe.augment.calmed())
    )
    first = recipe.augment.first_calm(recipe.training.epochs)
    workers = workers_for(train, device, recipe.data.workers)
    return training_batches(images, order, device, workers, None if first is None else (calm, first))


def training_batches(
    images: TorchImages,
    order: EpochBatches,
    device: torch.device,
    workers: int,
    calm: tuple[TorchImages, int] | None = None,
) -> Iterator[Batch]:
    """Batches without end: the sampler says where; set its place before each pass.

    Packed shards are taken a few at a time: the sampler is told here which picture lies in which. ``calm`` are the
    pictures from an epoch on, and that epoch.
    """
    order.windows = shard_windows(images.image_set.pictures)
    loader: DataLoader[Item] = DataLoader(
        VariedImages(images, order.seed, calm),
        batch_sampler=with_shards_ahead(order, images.image_set, lambda key: key[2], world=order.world),
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,
        prefetch_factor=4 if workers > 0 else None,
        collate_fn=collate,
        worker_init_fn=end_in_silence,
    )
    return _endless(loader)


def _endless(loader: DataLoader[Item]) -> Iterator[Batch]:
    while True:
        yield from _pass(loader)


def _pass(loader: DataLoader[_Item]) -> Iterator[Any]:
    """Go through a loader once; what a worker says of storage stays one line."""
    with deaf_children():
        batches = iter(loader)
    try:
        yield from batches
    except StorageError as error:
        raise StorageError(_own_words(error)) from None


def _own_words(error: StorageError) -> str:
    """What was raised in a worker, without the traceback that torch puts around it."""
    return re.split(r"\S*StorageError: ", str(error))[-1].strip()


def evaluation_batches(
    image_set: ImageSet,
    preprocessing: PreprocessingConfig,
    *,
    batch_size: int,
    device: torch.device,
    workers: int,
    max_broken: float,
    rank: int = 0,
    world: int = 1,
) -> Iterator[Batch]:
    """This process's share of a set, each picture once, in order."""
    images = TorchImages(image_set, evaluation_transform(preprocessing), max_broken)
    yield from in_order(
        images,
        image_set,
        collate,
        batch_size=batch_size,
        device=device,
        workers=workers,
        rank=rank,
        world=world,
    )


def in_order(
    items: Dataset[_Item],
    image_set: ImageSet,
    join: Callable[[list[_Item]], _Joined],
    *,
    batch_size: int,
    device: torch.device,
    workers: int,
    rank: int,
    world: int,
) -> Iterator[_Joined]:
    """Go once through this process's share of what is made of a set's pictures."""
    loader: DataLoader[_Item] = DataLoader(
        items,
        batch_sampler=with_shards_ahead(
            BatchSampler(range(rank, len(image_set), world), batch_size, drop_last=False),
            image_set,
            lambda i: i,
            world=world,
        ),
        num_workers=workers,
        pin_memory=device.type == "cuda",
        collate_fn=join,
        worker_init_fn=end_in_silence,
    )
    yield from _pass(loader)


def collate(items: list[Item]) -> Batch:
    """Stack items into a batch."""
    return Batch(
        torch.stack([item["image"] for item in items]),
        torch.stack([item["target"] for item in items]),
        torch.tensor([item["index"] for item in items]),
        torch.tensor([item["broken"] for item in items]),
    )


def note_broken(batch: Batch, image_set: ImageSet, log: BrokenLog) -> list[str]:
    """Count a batch's broken pictures by name; returns a line for each one that is new."""
    found = {}
    for index in batch.indices[batch.broken].tolist():
        name = image_set.pictures.name(index)
        if name not in log.reasons:
            found[name] = why_broken(image_set, index) or "could not be read the first time"
    return log.add_all(found)
