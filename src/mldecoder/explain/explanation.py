"""Where a model looked in one picture for each of some labels.

Shapes: h attention heads, r and c rows and columns of the grid.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mldecoder.errors import InputError
from mldecoder.explain.draw import lay_over, set_side_by_side, spread, tile
from mldecoder.explain.geometry import Box
from mldecoder.explain.maps import Kind

__all__ = ["Explanation", "LabelMap", "file_name"]

_KINDS: dict[Kind, str] = {
    "attention": "attention of the label's query",
    "contribution": "what each place adds to the logit",
}
_COLUMNS = 6  # tiles in a row


@dataclass(frozen=True, eq=False)
class LabelMap:
    """The map of one label: ``heads`` ``(h, r, c)``, one for each attention head.

    Where a query answers for a group of labels, the map belongs to the group: ``shared_by`` names all of them.
    """

    label: str
    score: float
    threshold: float
    heads: NDArray[np.float64]
    shared_by: tuple[str, ...]

    @property
    def map(self) -> NDArray[np.float64]:
        """The mean over the attention heads: ``(r, c)``."""
        mean: NDArray[np.float64] = self.heads.mean(axis=0)
        return mean

    @property
    def title(self) -> str:
        """Label and score."""
        return self.label + self.ending

    @property
    def ending(self) -> str:
        """The score, as it stands behind the label."""
        return f" {self.score:.2f}"

    @property
    def notes(self) -> list[str]:
        """What a person should know beside the score."""
        notes = [f"map shared by {len(self.shared_by)} labels"] if len(self.shared_by) > 1 else []
        return notes + ([f"below its threshold {self.threshold:.2f}"] if self.score < self.threshold else [])


@dataclass(frozen=True, eq=False)
class Explanation:
    """A picture and the maps of its labels, best first.

    ``kind`` says what a map is: ``"attention"``, which is never negative and sums to one over all tokens, or
    ``"contribution"`` (average pooling), whose sum and the bias are the label's logit. ``box`` is the part of the
    picture that the model saw.
    """

    name: str
    picture: Image.Image
    maps: tuple[LabelMap, ...]
    kind: Kind
    box: Box

    def __getitem__(self, label: str) -> LabelMap:
        for one in self.maps:
            if one.label == label:
                return one
        known = ", ".join(one.label for one in self.maps)
        raise InputError(f"There is no map of {label!r} here, only of {known}. Pass labels=[{label!r}] to explain.")

    def pixels(self, label: str, *, head: int | None = None) -> NDArray[np.float64]:
        """The map of a label in the pixels of the original picture; zero where the model did not look."""
        return spread(self._map(label, head), self.picture.size, self.box)[0]

    def overlay(self, label: str, *, head: int | None = None) -> Image.Image:
        """The picture with a label's map laid over it: averaged over the attention heads, or of one."""
        return lay_over(self.picture, self._map(label, head), self.box)

    def row(self) -> list[Image.Image]:
        """Captioned tiles: the picture itself, then every label."""
        lines = max([1, *(len(one.notes) for one in self.maps)])
        first = tile(self.picture, Path(self.name).name, [_KINDS[self.kind]], lines=lines)
        return [
            first,
            *(tile(self.overlay(one.label), one.label, one.notes, ending=one.ending, lines=lines) for one in self.maps),
        ]

    def contact_sheet(self) -> Image.Image:
        """All labels at once."""
        return sheet_of([self])

    def head_sheet(self, label: str) -> Image.Image:
        """One tile for each attention head of a label."""
        own = self[label]
        tiles = [tile(self.overlay(label), label, ["mean of the heads"], ending=own.ending)]
        tiles += [
            tile(self.overlay(label, head=i), label, [f"head {i + 1} of {len(own.heads)}"], ending=own.ending)
            for i in range(len(own.heads))
        ]
        return set_side_by_side(list(_rows(tiles)))

    def save(self, folder: str | Path, *, per_head: bool = False) -> list[Path]:
        """Write a PNG for every label, named after picture and label; returns their paths."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        written = []
        for one in self.maps:
            stem = f"{file_name(Path(self.name).stem)}--{file_name(one.label)}"
            written.append(_save(self.overlay(one.label), place / f"{stem}.png"))
            if per_head and len(one.heads) > 1:
                written.append(_save(self.head_sheet(one.label), place / f"{stem}--heads.png"))
        return written

    def _map(self, label: str, head: int | None) -> NDArray[np.float64]:
        own = self[label]
        if head is None:
            return own.map
        if not 0 <= head < len(own.heads):
            raise InputError(f"head must be between 0 and {len(own.heads) - 1}, got {head}.")
        chosen: NDArray[np.float64] = own.heads[head]
        return chosen


def sheet_of(explanations: Sequence[Explanation]) -> Image.Image:
    """One contact sheet for several pictures: each begins a new row."""
    return set_side_by_side([row for one in explanations for row in _rows(one.row())])


def file_name(text: str) -> str:
    """A label or stem as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:80] or "label"


def _rows(tiles: Sequence[Image.Image]) -> Iterator[Sequence[Image.Image]]:
    for start in range(0, len(tiles), _COLUMNS):
        yield tiles[start : start + _COLUMNS]


def _save(image: Image.Image, path: Path) -> Path:
    number = 1
    stem = path.stem
    while path.exists():  # two pictures of the same name
        number += 1
        path = path.with_name(f"{stem}-{number}.png")
    image.save(path)
    return path
