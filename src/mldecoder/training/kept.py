"""Pictures that are decoded once and kept, in memory or on the device, for sets that fit there.

Training on small sets is bound by the cores that decode and vary pictures. Here every training picture is squashed to a
canvas once, and each batch is varied where the model computes (:mod:`mldecoder.data.device_transforms`). Validation
pictures are kept as the evaluation transform leaves them, so that figures are the same to the last bit.

What varies a step is a function of seed, epoch and step, drawn for the whole step; a process takes its share.

Shapes: n pictures, b batch, s and t height and width of the canvas.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor

from mldecoder.config import PreprocessingConfig
from mldecoder.data.dataset import UNKNOWN, ImageSet
from mldecoder.data.device_transforms import DRAWS, BatchTransform, canvas_interpolation, canvas_size, squash
from mldecoder.data.images import decode
from mldecoder.data.pictures import shard_windows
from mldecoder.data.transforms import AugmentConfig
from mldecoder.errors import DataError
from mldecoder.recipes import Recipe
from mldecoder.training.console import Display
from mldecoder.training.loading import Batch, evaluation_batches, in_order, workers_for
from mldecoder.training.order import EpochBatches, Key
from mldecoder.training.room import check_room

__all__ = ["KeptPictures", "keep_pictures", "step_draws"]

_AT_ONCE = 64  # pictures a worker hands over at a time
_VARIATION = 1  # behind seed, epoch and step: the order of an epoch comes from the first two


def step_draws(seed: int, epoch: int, step: int, batch_size: int) -> NDArray[np.float64]:
    """The numbers from 0 to 1 that vary the pictures of a whole step: ``(batch_size, DRAWS)``."""
    return np.random.default_rng([seed, epoch, step, _VARIATION]).random((batch_size, DRAWS))


def keep_pictures(
    train: ImageSet,
    val: ImageSet,
    recipe: Recipe,
    preprocessing: PreprocessingConfig,
    order: EpochBatches,
    accelerator: Accelerator,
) -> "KeptPictures | None":
    """What ``data.keep`` asks for; None where pictures are decoded anew each time."""
    if recipe.data.keep == "none":
        return None
    return KeptPictures(train, val, recipe, preprocessing, order, accelerator)


class KeptPictures:
    """Training and validation pictures, decoded when they are first needed.

    Args:
        train: Pictures to learn from; every process keeps all of them.
        val: Pictures to validate on; every process keeps its share.
        recipe: Says where, and how they are varied.
        preprocessing: How the model wants its pictures.
        order: Which pictures come when in this process.
        accelerator: Device and processes.

    Raises:
        ConfigError: when they do not fit.
    """

    def __init__(
        self,
        train: ImageSet,
        val: ImageSet,
        recipe: Recipe,
        preprocessing: PreprocessingConfig,
        order: EpochBatches,
        accelerator: Accelerator,
    ) -> None:
        self.train, self.val, self.recipe, self.preprocessing = train, val, recipe, preprocessing
        self.order, self.accelerator, self.device = order, accelerator, accelerator.device
        order.windows = shard_windows(train.pictures)  # the same order as without keeping
        self.place = self.device if recipe.data.keep == "device" else torch.device("cpu")
        self.canvas = canvas_size(recipe.augment, preprocessing.size)
        self.vary, self.vary_calmly, self.show = (
            BatchTransform(augment, preprocessing.size, preprocessing.interpolation)
            for augment in (recipe.augment, recipe.augment.calmed(), AugmentConfig(resize="squash", flip=False))
        )
        self._pictures: Tensor | None = None  # uint8 (n, 3, s, t)
        self._sizes = np.ones((len(train), 2), dtype=np.int64)  # height and width of the originals
        self._broken = np.zeros(len(train), dtype=np.bool_)
        self._measured: list[Batch] | None = None
        way_out = "Set data.keep=none, or a smaller image.size."
        if self.place.type != "cpu":
            way_out = "Set data.keep=memory or data.keep=none, or a smaller image.size."
        what = f"data.keep={recipe.data.keep} of {len(train):,} training and {len(val):,} validation pictures"
        check_room(what, self.needed(), self.place, way_out)

    def needed(self) -> int:
        """How many bytes this process will keep."""
        height, width = self._evaluation().size
        share = math.ceil(len(self.val) / int(self.accelerator.num_processes))
        s, t = self.canvas
        return 3 * (len(self.train) * s * t + share * height * width)

    def fill(self, display: Display) -> None:
        """Decode the training pictures, unless that was done: each process its share, which all get."""
        if self._pictures is not None:
            return
        started, count, world = time.monotonic(), len(self.train), self.accelerator.num_processes
        pictures = torch.zeros((count, 3, *self.canvas), dtype=torch.uint8, device=self.place)
        facts = torch.zeros((count, 3), dtype=torch.int64)
        display.begin("Training pictures", count)
        done = 0
        for indices, images, found in in_order(
            _Squashed(self.train, self.canvas, canvas_interpolation(self.recipe.augment, self.vary.interpolation)),
            self.train,
            _joined,
            batch_size=_AT_ONCE,
            device=self.device,
            workers=self._workers(self.train),
            rank=self.accelerator.process_index,
            world=world,
        ):
            pictures[indices.to(self.place)] = images.to(self.place)
            facts[indices] = found
            done += len(indices)
            display.advance(min(count, done * world))
        if world > 1:  # what another process decoded is zero here
            for part in torch.split(pictures, _AT_ONCE):
                part.copy_(self.accelerator.reduce(part.to(self.device), reduction="sum"))
            facts = self.accelerator.reduce(facts.to(self.device), reduction="sum").cpu()
        self._pictures = pictures
        self._sizes, self._broken = facts[:, :2].numpy(), facts[:, 2].numpy().astype(np.bool_)
        where = "in memory" if self.recipe.data.keep == "memory" else f"on {self.device}"
        display.say(
            f"Training pictures: {count:,} decoded in {time.monotonic() - started:.0f} s, {pictures.nbytes / 1e9:.2f} "
            f"GB {where}."
        )

    def batches(self) -> Iterator[Batch]:
        """Batches without end, varied, on the device; the sampler says where, and is asked before each pass."""
        while True:
            for keys in self.order:
                yield self._batch(keys, self._in_epoch(keys[0][0]))

    def unvaried(self, order: EpochBatches) -> Iterator[Batch]:
        """Training pictures whole and as they are, in an order of their own, on the device."""
        for keys in order:
            yield self._batch(keys, self.show)

    def evaluation(self, display: Display) -> Iterator[Batch]:
        """This process's share of the validation pictures, in order, as :func:`evaluation_batches` gives them."""
        if self._measured is None:
            wish, count = self.recipe.evaluation, len(self.val)
            rank, world = self.accelerator.process_index, self.accelerator.num_processes
            display.begin("Validation pictures", count)
            found, done = list[Batch](), 0
            for batch in evaluation_batches(
                self.val,
                self._evaluation(),
                batch_size=wish.batch_size or self.recipe.training.batch_size,
                device=self.device,
                workers=self._workers(self.val),
                max_broken=self.recipe.data.max_broken,
                rank=rank,
                world=world,
            ):
                found.append(self._copied(batch))
                done += len(batch.indices)
                display.advance(min(count, done * world))
            self._measured = found
        return iter(self._measured)

    def _in_epoch(self, epoch: int) -> BatchTransform:
        augment = self.recipe.augment
        return self.vary if augment.in_epoch(epoch, self.recipe.training.epochs) is augment else self.vary_calmly

    def _batch(self, keys: list[Key], vary: BatchTransform) -> Batch:
        epochs, places, indices = np.array(keys, dtype=np.int64).T
        size = self.order.batch_size
        draws = step_draws(self.order.seed, int(epochs[0]), int(places[0]) // size, size)[places % size]
        broken = self._broken[indices]
        targets = self.train.targets.rows(indices)
        targets[broken] = UNKNOWN
        chosen = torch.from_numpy(indices)
        images = vary(self._gather(chosen), self._sizes[indices], draws, broken)
        return Batch(images, self._pinned(torch.from_numpy(targets)), chosen, torch.from_numpy(broken))

    def _gather(self, chosen: Tensor) -> Tensor:
        """Some of the pictures, on the device: ``(b,) -> (b, 3, s, t)``."""
        if self._pictures is None:
            raise RuntimeError("Pictures are kept once fill() was called.")
        if self.place == self.device:
            return self._pictures.index_select(0, self._pinned(chosen).to(self.device, non_blocking=True))
        # Only what travels is pinned: torch would round the whole up to a power of two.
        some = torch.empty((len(chosen), 3, *self.canvas), dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        torch.index_select(self._pictures, 0, chosen, out=some)
        return some.to(self.device, non_blocking=True)

    def _pinned(self, values: Tensor) -> Tensor:
        """The same where a copy to the device waits for nothing that is under way."""
        return values.pin_memory() if self.device.type == "cuda" else values

    def _copied(self, batch: Batch) -> Batch:
        """The batch in memory of its own: what workers hand over holds a file open."""
        return replace(
            batch,
            images=batch.images.to(self.place, copy=True),
            targets=batch.targets.clone(),
            indices=batch.indices.clone(),
            broken=batch.broken.clone(),
        )

    def _evaluation(self) -> PreprocessingConfig:
        size = self.recipe.evaluation.size
        return self.preprocessing if size is None else self.preprocessing.model_copy(update={"size": (size, size)})

    def _workers(self, image_set: ImageSet) -> int:
        return workers_for(image_set, self.device, self.recipe.data.workers)


_Canvas = tuple[int, Tensor, tuple[int, int, int]]  # number, uint8 (3, s, t), height, width and whether it is broken


class _Squashed(torch.utils.data.Dataset[_Canvas]):
    """Pictures on their canvases; zeros where one cannot be decoded."""

    def __init__(self, image_set: ImageSet, canvas: tuple[int, int], interpolation: str) -> None:
        self.image_set, self.canvas, self.interpolation = image_set, canvas, interpolation

    def __len__(self) -> int:
        return len(self.image_set)

    def __getitem__(self, i: int) -> _Canvas:
        try:
            picture = decode(self.image_set.pictures.read(i))
        except DataError:
            return i, torch.zeros((3, *self.canvas), dtype=torch.uint8), (1, 1, 1)
        return i, squash(picture, self.canvas, self.interpolation), (picture.height, picture.width, 0)


def _joined(items: list[_Canvas]) -> tuple[Tensor, Tensor, Tensor]:
    numbers, images, facts = zip(*items, strict=True)
    return torch.tensor(numbers), torch.stack(images), torch.tensor(facts)
