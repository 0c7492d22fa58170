"""Targets of a batch as lists of class numbers: for a million classes a dense row would be nearly all zeros.

Shapes: b images, n classes, e listed entries.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mldecoder.errors import InputError

__all__ = ["SparseTargets"]


@dataclass(frozen=True, eq=False)
class SparseTargets:
    """The targets of b images over n classes, in compressed sparse rows.

    Image ``i`` lists the classes ``columns[offsets[i]:offsets[i + 1]]`` with their ``values``; every entry that is
    not listed is ``default``: 0 for negative, -1 for unknown. No entry may be listed twice; ``from_lists`` sees to it.
    A data loader pins and moves it like a tensor.
    """

    offsets: Tensor  # (b + 1,), int64
    columns: Tensor  # (e,), int64 or int32
    values: Tensor  # (e,), int8, or floating point for soft targets
    num_classes: int
    default: int = 0

    def __post_init__(self) -> None:
        if self.default not in (0, -1):
            raise InputError(f"default must be 0 (negative) or -1 (unknown), got {self.default}.")
        if self.offsets.ndim != 1 or len(self.offsets) < 1:
            raise InputError(f"offsets must have the shape (images + 1,), got {tuple(self.offsets.shape)}.")
        if self.columns.ndim != 1 or self.columns.shape != self.values.shape:
            raise InputError(
                "columns and values must have one entry a listed target, "
                f"got the shapes {tuple(self.columns.shape)} and {tuple(self.values.shape)}."
            )
        if not self.values.dtype.is_signed:
            raise InputError(f"values must be of a type with a sign, for -1 is unknown; got {self.values.dtype}.")
        if self.columns.device.type == "cpu":  # a GPU would have to stop for this
            _check_columns(self.columns, self.num_classes)
            if int(self.offsets[-1]) != len(self.columns):
                raise InputError(
                    f"offsets must end at the number of listed targets, {len(self.columns)}, "
                    f"got {int(self.offsets[-1])}."
                )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.columns.device

    @property
    def rows(self) -> Tensor:
        """The image of each listed entry: ``(e,)``."""
        images = torch.arange(len(self), device=self.device)
        # The size is known here; without it a GPU would be asked for it, and waited for.
        return images.repeat_interleave(self.offsets.diff(), output_size=len(self.columns))

    @classmethod
    def from_lists(
        cls,
        positives: Sequence[Sequence[int]],
        *,
        num_classes: int,
        unknown: Sequence[Sequence[int]] | None = None,
        negatives: Sequence[Sequence[int]] | None = None,
        default: int = 0,
    ) -> "SparseTargets":
        """Build from a list of class numbers an image; a positive wins over a negative, both over unknown.

        Example:
            >>> SparseTargets.from_lists([[0, 2], []], unknown=[[1], []], num_classes=3).to_dense()
            tensor([[ 1, -1,  1],
                    [ 0,  0,  0]], dtype=torch.int8)
        """
        rows: list[Tensor] = []
        columns: list[Tensor] = []
        values: list[Tensor] = []
        for value, lists in ((1, positives), (0, negatives), (-1, unknown)):
            if lists is None:
                continue
            if len(lists) != len(positives):
                raise InputError(f"There must be one list an image, {len(positives)} as positives, got {len(lists)}.")
            flat = torch.tensor([column for one in lists for column in one], dtype=torch.long)
            counts = torch.tensor([len(one) for one in lists], dtype=torch.long)
            rows.append(torch.arange(len(lists)).repeat_interleave(counts))
            columns.append(flat)
            values.append(torch.full_like(flat, value, dtype=torch.int8))
        row, column, value_of = torch.cat(rows), torch.cat(columns), torch.cat(values)
        _check_columns(column, num_classes)
        key, order = (row * num_classes + column).sort(stable=True)  # the strongest statement stays in front
        value_of = value_of[order]
        kept = torch.ones_like(key, dtype=torch.bool)
        kept[1:] = key[1:] != key[:-1]
        kept &= value_of != default
        key = key[kept]
        per_image = torch.bincount(key // num_classes, minlength=len(positives))
        return cls(_offsets(per_image), key % num_classes, value_of[kept], num_classes, default)

    @classmethod
    def from_arrays(
        cls, offsets: object, columns: object, values: object, *, num_classes: int, default: int = 0
    ) -> "SparseTargets":
        """Build from arrays, as the ``indptr``, ``columns`` and ``values`` of the targets of a dataset are."""
        return cls(
            torch.as_tensor(offsets, dtype=torch.long),
            torch.as_tensor(columns, dtype=torch.long),
            torch.as_tensor(values),
            num_classes,
            default,
        )

    @classmethod
    def from_dense(cls, targets: Tensor, *, default: int = 0) -> "SparseTargets":
        """Build from a dense tensor ``(b, n)`` of 1, 0, anything between, and -1 for unknown."""
        signed = targets if targets.dtype.is_signed else targets.to(torch.int8)
        listed = signed != default
        rows, columns = listed.nonzero(as_tuple=True)
        return cls(_offsets(listed.sum(dim=1)), columns, signed[rows, columns], targets.shape[1], default)

    def to_dense(self) -> Tensor:
        """Write every entry out: ``(b, n)``. For small numbers of classes."""
        dense = torch.full(
            (len(self), self.num_classes), self.default, dtype=self.values.dtype, device=self.values.device
        )
        dense[self.rows, self.columns] = self.values
        return dense

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "SparseTargets":
        """Return the same on a device."""
        return replace(
            self,
            offsets=self.offsets.to(device, non_blocking=non_blocking),
            columns=self.columns.to(device, non_blocking=non_blocking),
            values=self.values.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> "SparseTargets":
        """Return the same in page-locked memory, from where copies to a GPU need no waiting."""
        return replace(
            self,
            offsets=self.offsets.pin_memory(),
            columns=self.columns.pin_memory(),
            values=self.values.pin_memory(),
        )


def _offsets(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _check_columns(columns: Tensor, num_classes: int) -> None:
    if len(columns) and not (int(columns.min()) >= 0 and int(columns.max()) < num_classes):
        raise InputError(
            f"class numbers must lie in 0..{num_classes - 1}, got {int(columns.min())}..{int(columns.max())}."
        )
