"""The shape that every reader brings its data into."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from numpy.typing import ArrayLike

from mldecoder.data.pictures import Arrays, Files, Pictures, TarMembers, pick
from mldecoder.data.targets import UNKNOWN, ClassCounts, Targets
from mldecoder.errors import DataError

__all__ = [
    "UNKNOWN",
    "Arrays",
    "ClassCounts",
    "Dataset",
    "Files",
    "ImageSet",
    "Pictures",
    "TarMembers",
    "Targets",
    "Task",
]

Task = Literal["multi-label", "single-label"]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Pictures and their targets over named labels."""

    pictures: Pictures
    targets: Targets
    labels: tuple[str, ...]
    task: Task = "multi-label"

    def __post_init__(self) -> None:
        if len(self.pictures) != len(self.targets):
            raise DataError(
                f"Every picture needs one row of targets: {len(self.pictures)} pictures, {len(self.targets)} rows."
            )
        if len(self.labels) != self.targets.num_classes:
            raise DataError(
                f"Every label needs one column of targets: {len(self.labels)} labels, "
                f"{self.targets.num_classes} columns."
            )

    def __len__(self) -> int:
        return len(self.pictures)

    def select(self, indices: ArrayLike) -> "ImageSet":
        """Some of the pictures, in the order given."""
        return replace(self, pictures=pick(self.pictures, indices), targets=self.targets.select(indices))

    def keep_labels(self, names: Sequence[str]) -> "ImageSet":
        """The same pictures with some of the labels, in the order given."""
        place = {label: i for i, label in enumerate(self.labels)}
        missing = [name for name in names if name not in place]
        if missing:
            raise DataError(f"Labels must be among the {len(place)} of the data, got {missing[0]!r}.")
        targets = self.targets.keep_classes([place[name] for name in names])
        return replace(self, targets=targets, labels=tuple(names))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training part, a validation part where there is one, and what was found on the way."""

    train: ImageSet
    val: ImageSet | None
    name: str
    format: str
    description: str
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of both parts."""
        return self.train.labels

    @property
    def task(self) -> Task:
        """Whether a picture has one label or any number of them."""
        return self.train.task


def describe(format_: str, train: ImageSet, val: ImageSet | None, found: str) -> str:
    """One line for a person: what it is, how much of it, and by what it was recognised."""
    size = f"{len(train):,} + {len(val):,} pictures" if val is not None else f"{len(train):,} pictures"
    return f"{format_}, {size}, {len(train.labels):,} labels, {train.task}, found {found}"
