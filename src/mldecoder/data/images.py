"""Pictures as tensors for training, and what happens to those that cannot be read.

Shapes: k labels.
"""

from collections.abc import Callable, Mapping
from typing import TypedDict

import torch
from PIL import Image
from torch import Tensor

from mldecoder.data.dataset import UNKNOWN, ImageSet
from mldecoder.data.decode import MAX_PIXELS, decode
from mldecoder.errors import ConfigError, DataError

__all__ = ["MAX_PIXELS", "BrokenLog", "Item", "TorchImages", "decode", "why_broken"]


class Item(TypedDict):
    """One training example."""

    image: Tensor
    target: Tensor  # int8 (k,)
    index: int
    broken: bool


class TorchImages(torch.utils.data.Dataset[Item]):
    """Decode, transform, and hand over with targets.

    A picture that cannot be decoded comes as zeros with all targets unknown and ``broken=True``: it costs nothing
    in the loss and counts in no metric. The main process counts such pictures by name in a ``BrokenLog``, which also
    says when they are too many: the count is right with worker processes, and their errors are one line.

    Args:
        image_set: Pictures and targets.
        transform: From an RGB picture to a tensor of always the same shape.
        max_broken: How many pictures may be broken: a number, or a fraction of all when a float below 1.
        at_least: Decode large JPEG files faster, at a smaller size with both sides at least this long.
    """

    def __init__(
        self,
        image_set: ImageSet,
        transform: Callable[[Image.Image], Tensor],
        max_broken: int | float = 0.01,
        *,
        at_least: int | None = None,
    ) -> None:
        self.image_set = image_set
        self.transform = transform
        self.max_broken = max_broken
        self.at_least = at_least

    def __len__(self) -> int:
        return len(self.image_set)

    def __getitem__(self, i: int) -> Item:
        pictures = self.image_set.pictures
        try:
            picture = decode(pictures.read(i), at_least=self.at_least)
        except DataError:
            blank = self.transform(Image.new("RGB", (256, 256)))
            unknown = torch.full((len(self.image_set.labels),), UNKNOWN, dtype=torch.int8)
            return {"image": torch.zeros_like(blank), "target": unknown, "index": i, "broken": True}
        target = torch.from_numpy(self.image_set.targets.row(i))
        return {"image": self.transform(picture), "target": target, "index": i, "broken": False}

    def broken_log(self) -> "BrokenLog":
        """A log with this dataset's limit, for the loop to feed."""
        return BrokenLog(self.max_broken, total=len(self))


class BrokenLog:
    """Broken pictures met so far, each counted once; an error when they are too many.

    Args:
        limit: How many may be broken: a number, or a fraction of ``total`` when a float below 1.
        total: How many pictures there are; needed with a fraction.
    """

    def __init__(self, limit: int | float, *, total: int | None = None) -> None:
        if limit < 0:
            raise ConfigError(f"The limit of broken pictures must be 0 or more, got {limit}.")
        if isinstance(limit, float) and limit < 1:
            if total is None:
                raise ConfigError(f"A fraction of broken pictures ({limit}) needs the total. Give a whole number.")
            limit = int(limit * total)
        self.limit = int(limit)
        self.reasons: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.reasons)

    def add(self, name: str, reason: str) -> bool:
        """Note a broken picture; True when it is a new one.

        Raises:
            DataError: when there are now more than the limit.
        """
        if name in self.reasons:
            return False
        self.reasons[name] = reason
        if len(self.reasons) > self.limit:
            shown = "; ".join(f"{n}: {r}" for n, r in list(self.reasons.items())[:3])
            raise DataError(
                f"At most {self.limit} broken pictures are allowed, got {len(self.reasons)} ({shown}"
                f"{'; ...' if len(self.reasons) > 3 else ''}). Mend or remove them, or raise data.max_broken."
            )
        return True

    def add_all(self, reasons: Mapping[str, str]) -> list[str]:
        """Note several broken pictures by name and reason; returns a line for each new one."""
        return [f"{name}: {reason}; skipped" for name, reason in reasons.items() if self.add(name, reason)]

    def report(self, part: str) -> list[str]:
        """One line for all of a part, then one line a picture; nothing when all were whole."""
        if not self.reasons:
            return []
        head = f"{len(self.reasons)} broken pictures of the {part} part were skipped (limit {self.limit}):"
        return [head, *(f"  {name}: {reason}" for name, reason in sorted(self.reasons.items()))]


def why_broken(image_set: ImageSet, i: int) -> str | None:
    """Why picture ``i`` cannot be decoded; None when it can."""
    name = image_set.pictures.name(i)
    try:
        decode(image_set.pictures.read(i))
    except DataError as error:
        return str(error).removeprefix(f"{name}: ").removesuffix(".")
    return None
