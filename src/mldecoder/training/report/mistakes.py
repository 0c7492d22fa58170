"""Confident mistakes: what the model is sure of and the labels deny, and the other way round.

Shapes: n pictures, k labels, c labels of one chunk, m candidates of a label.
Unknown targets never count as mistakes.
"""

import base64
import io
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from mldecoder.data.decode import decode
from mldecoder.data.pictures import Pictures
from mldecoder.errors import DataError
from mldecoder.metrics.counts import class_numbers
from mldecoder.training.report.confusion import wrong_pictures
from mldecoder.training.report.data import ReportData
from mldecoder.training.report.figures import THRESHOLD

__all__ = ["LIMIT", "Mistake", "false_negatives", "false_positives", "thumbnail"]

LIMIT = 24
"""Mistakes of each kind."""

_SIDE = 176
"""Longest side of a thumbnail in pixels: sharp at the size at which the page shows it."""

_CHUNK = 512
"""Labels searched in one go."""


class Mistake(NamedTuple):
    """One wrong entry."""

    picture: int
    label: int
    score: float


def false_positives(data: ReportData, *, limit: int = LIMIT) -> list[Mistake]:
    """Labels given with the highest scores to pictures that do not have them; single-label: best guesses."""
    if data.task == "single-label":
        wrong = wrong_pictures(data.scores, data.targets)
        score, guess = data.scores[wrong].max(dim=1)
        return list(islice(_best(wrong, guess, score, sign=1), limit))
    return _varied(_candidates(data, of=0, limit=limit), limit, len(data.labels))


def false_negatives(data: ReportData, *, limit: int = LIMIT) -> list[Mistake]:
    """Labels given with the lowest scores to pictures that have them; single-label: of wrong pictures."""
    if data.task == "single-label":
        wrong = wrong_pictures(data.scores, data.targets)
        truth = class_numbers(data.scores, data.targets)[wrong]
        score = data.scores[wrong].gather(1, truth.unsqueeze(1)).squeeze(1)
        return list(islice(_best(wrong, truth, score, sign=-1), limit))
    return _varied(_candidates(data, of=1, limit=limit), limit, len(data.labels))


def thumbnail(pictures: Pictures, i: int) -> str | None:
    """A small JPEG of picture ``i`` as a ``data:`` address, or None when it cannot be read."""
    try:
        image = decode(pictures.read(i), at_least=_SIDE)
    except DataError:
        return None
    image.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=75, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _best(pictures: Tensor, labels: Tensor, scores: Tensor, *, sign: Literal[1, -1]) -> Iterator[Mistake]:
    """All of them, by falling (sign 1) or rising score."""
    order = (sign * scores).argsort(descending=True, stable=True)
    found = zip(pictures[order].tolist(), labels[order].tolist(), scores[order].tolist(), strict=True)
    return (Mistake(int(i), int(j), score) for i, j, score in found)


def _candidates(data: ReportData, *, of: Literal[0, 1], limit: int) -> Iterator[Mistake]:
    """The worst entries of every label with the target ``of``, worst first.

    Fewer than ``limit`` pictures are shown already when an entry is looked at, so that with as many in reserve a
    label never lacks an entry that ``_varied`` would have taken.
    """
    sign: Literal[1, -1] = 1 if of == 0 else -1
    n, k = data.scores.shape
    size = min(n, _per_label(limit, k) + limit)
    found = []
    for start in range(0, k, _CHUNK):
        scores, targets = data.scores[:, start : start + _CHUNK], data.targets[:, start : start + _CHUNK]
        wrong = (targets == of) & ((scores >= THRESHOLD) if of == 0 else (scores < THRESHOLD))
        top = (sign * scores).masked_fill(~wrong, -torch.inf).topk(size, dim=0)  # (m, c)
        place, column = top.values.isfinite().nonzero(as_tuple=True)
        found.append((top.indices[place, column], column + start, sign * top.values[place, column]))
    pictures, labels, worst = (torch.cat(parts) for parts in zip(*found, strict=True))
    return _best(pictures, labels, worst, sign=sign)


def _varied(mistakes: Iterator[Mistake], limit: int, k: int) -> list[Mistake]:
    """The first of them, each picture once and no label too often."""
    pictures: set[int] = set()
    labels: Counter[int] = Counter()
    chosen: list[Mistake] = []
    for mistake in mistakes:
        if len(chosen) == limit:
            break
        if mistake.picture in pictures or labels[mistake.label] == _per_label(limit, k):
            continue
        pictures.add(mistake.picture)
        labels[mistake.label] += 1
        chosen.append(mistake)
    return chosen


def _per_label(limit: int, k: int) -> int:
    """How often one label may be shown, so that one bad label does not hide all others."""
    return max(3, limit // k)
