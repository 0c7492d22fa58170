"""What is known of which label of which picture, held compactly.

Shapes: n pictures, k labels, m chosen pictures, e listed entries.

Only the entries that differ from a default are listed (compressed sparse rows), so that the nine million
pictures and 9,600 labels of Open Images fit in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mldecoder.errors import DataError

__all__ = ["UNKNOWN", "ClassCounts", "Targets"]

UNKNOWN = -1
"""The target of a label of which nobody said whether the picture has it."""

_RANK = np.array([1, 0, 2])  # of the values 0, 1 and -1 (the last index): which statement wins
_VALUE = np.array([1, 0, UNKNOWN, UNKNOWN], dtype=np.int8)  # the way back


@dataclass(frozen=True)
class ClassCounts:
    """How many pictures have, lack, or may have each label; three ``(k,)`` arrays."""

    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    unknown: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Targets:
    """The targets 1, 0 and ``UNKNOWN`` of n pictures over k labels.

    Row ``i`` lists ``columns[indptr[i]:indptr[i + 1]]`` with their ``values``; every other entry is ``default``.
    """

    indptr: NDArray[np.int64]  # (n + 1,)
    columns: NDArray[np.int32]  # (e,)
    values: NDArray[np.int8]  # (e,)
    num_classes: int
    default: int = 0

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def from_lists(
        cls,
        positives: Sequence[Sequence[int] | NDArray[np.int64]],
        *,
        num_classes: int,
        negatives: Sequence[Sequence[int]] | None = None,
        unknown: Sequence[Sequence[int]] | None = None,
        default: int = 0,
    ) -> "Targets":
        """Build from a list of label indices a picture; a positive wins over a negative, both over unknown.

        Example:
            >>> Targets.from_lists([[0, 2], []], num_classes=3, unknown=[[1], []]).row(0).tolist()
            [1, -1, 1]
        """
        rows, columns, values = [], [], []
        for value, lists in ((1, positives), (0, negatives), (UNKNOWN, unknown)):
            if lists is None:
                continue
            if len(lists) != len(positives):
                raise DataError(
                    f"Every list must have one entry a picture: {len(positives)} positives, got {len(lists)}."
                )
            lengths = np.fromiter((len(one) for one in lists), dtype=np.int64, count=len(lists))
            rows.append(np.repeat(np.arange(len(lists)), lengths))
            columns.append(np.fromiter((c for one in lists for c in one), np.int64, count=int(lengths.sum())))
            values.append(np.full(int(lengths.sum()), value, dtype=np.int8))
        return cls.from_triplets(
            np.concatenate(rows),
            np.concatenate(columns),
            np.concatenate(values),
            num_rows=len(positives),
            num_classes=num_classes,
            default=default,
        )

    @classmethod
    def from_triplets(
        cls,
        rows: ArrayLike,
        columns: ArrayLike,
        values: ArrayLike,
        *,
        num_rows: int,
        num_classes: int,
        default: int = 0,
    ) -> "Targets":
        """Build from ``(e,)`` arrays of picture, label and value, in any order, with repeats."""
        rows, columns = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
        if len(columns) and not (columns.min() >= 0 and columns.max() < num_classes):
            raise DataError(f"Label indices must lie in 0..{num_classes - 1}, got {columns.min()}..{columns.max()}.")
        # One integer an entry, so that one sort orders by picture, then label, then the stronger statement.
        keys = ((rows * num_classes + columns) << 2) | _RANK[np.asarray(values, dtype=np.int64)]
        keys.sort()
        cells = keys >> 2
        first = np.ones(len(keys), dtype=bool)
        first[1:] = cells[1:] != cells[:-1]
        kept = _VALUE[keys & 3]
        first &= kept != default
        cells = cells[first]
        indptr = np.zeros(num_rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(cells // max(num_classes, 1), minlength=num_rows), out=indptr[1:])
        return cls(indptr, (cells % max(num_classes, 1)).astype(np.int32), kept[first], num_classes, default)

    @classmethod
    def from_classes(cls, classes: ArrayLike, *, num_classes: int) -> "Targets":
        """Build from one label index a picture."""
        columns = np.asarray(classes, dtype=np.int64)
        n = len(columns)
        return cls.from_triplets(np.arange(n), columns, np.ones(n, np.int8), num_rows=n, num_classes=num_classes)

    def row(self, i: int) -> NDArray[np.int8]:
        """Targets of picture ``i``: ``(k,)``."""
        dense = np.full(self.num_classes, self.default, dtype=np.int8)
        start, stop = self.indptr[i], self.indptr[i + 1]
        dense[self.columns[start:stop]] = self.values[start:stop]
        return dense

    def rows(self, indices: ArrayLike) -> NDArray[np.int8]:
        """Targets of the chosen pictures: ``(m,) -> (m, k)``."""
        part = self.select(indices)
        dense = np.full((len(part), self.num_classes), self.default, dtype=np.int8)
        dense[part.row_of_entry(), part.columns] = part.values
        return dense

    def positives(self, i: int) -> NDArray[np.int32]:
        """Indices of the labels that picture ``i`` has, in ascending order."""
        if self.default == 1:
            return np.flatnonzero(self.row(i) == 1).astype(np.int32)
        part = slice(self.indptr[i], self.indptr[i + 1])
        listed: NDArray[np.int32] = self.columns[part][self.values[part] == 1]
        return listed

    def positives_per_image(self) -> NDArray[np.int64]:
        """How many labels each picture has: ``(n,)``."""
        return np.bincount(self.row_of_entry()[self.values == 1], minlength=len(self))

    def row_of_entry(self) -> NDArray[np.int64]:
        """The picture that each listed entry belongs to: ``(e,)``."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def counts(self) -> ClassCounts:
        """Count positives, negatives and unknowns of each label."""
        k = self.num_classes
        count = {v: np.bincount(self.columns[self.values == v], minlength=k) for v in (1, 0, UNKNOWN)}
        listed = np.bincount(self.columns, minlength=k)
        count[self.default] = count[self.default] + len(self) - listed
        return ClassCounts(positives=count[1], negatives=count[0], unknown=count[UNKNOWN])

    def select(self, indices: ArrayLike) -> "Targets":
        """The same for some pictures, in the order given."""
        chosen = np.asarray(indices, dtype=np.int64)
        starts = self.indptr[chosen]
        lengths = self.indptr[chosen + 1] - starts
        indptr = np.zeros(len(chosen) + 1, dtype=np.int64)
        np.cumsum(lengths, out=indptr[1:])
        entries = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
        return Targets(indptr, self.columns[entries], self.values[entries], self.num_classes, self.default)

    def keep_classes(self, classes: ArrayLike) -> "Targets":
        """The same for some labels, in the order given."""
        chosen = np.asarray(classes, dtype=np.int64)
        new = np.full(self.num_classes, -1, dtype=np.int64)
        new[chosen] = np.arange(len(chosen))
        kept = new[self.columns] >= 0
        return Targets.from_triplets(
            self.row_of_entry()[kept],
            new[self.columns[kept]],
            self.values[kept],
            num_rows=len(self),
            num_classes=len(chosen),
            default=self.default,
        )
