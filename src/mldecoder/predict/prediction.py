"""What a model says about one picture.

Shapes: k labels.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mldecoder.errors import InputError

__all__ = ["Prediction", "Tag"]


class Tag(NamedTuple):
    """A label that a picture was given, and its probability."""

    label: str
    score: float


@dataclass(frozen=True, eq=False)
class Prediction:
    """Tags and scores of one picture.

    ``tags`` are the labels whose score reaches their threshold, best first. ``scores`` and ``thresholds`` ``(k,)``
    hold every label asked for, in the order of ``labels``. Of a picture that cannot be read only ``error`` is there.
    """

    name: str
    tags: tuple[Tag, ...]
    labels: tuple[str, ...]
    scores: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    error: str | None = None

    def score(self, label: str) -> float:
        """The score of one label."""
        if label not in self.labels:
            raise InputError(f"{label!r} was not scored. The labels asked for are in `prediction.labels`.")
        return float(self.scores[self.labels.index(label)])

    def to_dict(self, *, all_scores: bool = False) -> dict[str, Any]:
        """Plain values for JSON: name and tags, and the score of every label if asked."""
        plain: dict[str, Any] = {
            "path": self.name,
            "tags": [{"label": tag.label, "score": round(tag.score, 6)} for tag in self.tags],
        }
        if self.error is not None:
            plain["error"] = self.error
        if all_scores:
            rounded = np.round(self.scores, 6).tolist()
            plain["scores"] = dict(zip(self.labels, rounded, strict=True)) if self.error is None else {}
        return plain

    def told(self) -> str:
        """One line for a person who asked for these labels: those below their thresholds too."""
        if self.error is not None:
            return str(self)
        scored = sorted(zip(self.scores, self.labels, self.thresholds, strict=True), reverse=True)
        below = ", ".join(f"{label} {score:.2f}" for score, label, threshold in scored if score < threshold)
        return f"{self}; below their thresholds: {below}" if below else str(self)

    def __str__(self) -> str:
        """One line for a person."""
        if self.error is not None:
            return f"{self.name}: {self.error}"
        return f"{self.name}: " + (", ".join(f"{label} {score:.2f}" for label, score in self.tags) or "no tag")
