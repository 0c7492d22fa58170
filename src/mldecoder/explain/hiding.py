"""Are the maps faithful? Hide what a label's map points at and see whether its score falls more than by chance.

Three ways to hide the same number of grid cells of a picture, each filled with the picture's mean colour: the cells
that the map gives most, cells at random, and the most attended ones shifted to a random other place (the same shape,
so that a large hole and many small ones are not confused).

Shapes: b batch, r and c rows and columns of the grid, h and w height and width.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mldecoder.data.dataset import ImageSet
from mldecoder.errors import ConfigError, DataError
from mldecoder.explain.maps import Maps, look
from mldecoder.model import Classifier
from mldecoder.predict import Predictor, Source
from mldecoder.predict.ahead import in_order, quiet_pillow
from mldecoder.predict.predictor import evaluating

__all__ = ["Drop", "Faithfulness", "faithfulness", "hide", "most_attended"]


@dataclass(frozen=True)
class Drop:
    """A mean over pictures, with its 95 % interval (1.96 standard errors either way)."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Drop":
        """The mean of one value a picture."""
        numbers = np.asarray(values, dtype=np.float64)
        mean = float(numbers.mean())
        error = float(numbers.std(ddof=1)) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan
        return cls(mean, mean - 1.96 * error, mean + 1.96 * error)

    def __str__(self) -> str:
        return f"{self.mean:.4f} ({self.low:.4f} to {self.high:.4f})"


@dataclass(frozen=True)
class Faithfulness:
    """By how much the score of a label falls when a part of the picture is hidden.

    Every picture counts once, as the mean over its labels (and draws); the differences are paired.
    """

    pictures: int
    labels: int  # pairs of picture and label
    fraction: float  # hidden part of the picture, in whole grid cells
    score: float  # mean before anything is hidden
    attended: Drop
    random: Drop
    shifted: Drop
    difference: Drop  # attended less random
    difference_shifted: Drop  # attended less shifted

    @property
    def ratio(self) -> float:
        """How many times more the most attended part matters than a random one."""
        return self.attended.mean / self.random.mean if self.random.mean > 0 else math.inf

    def lines(self) -> list[str]:
        """The figures for a person."""
        times = f" ({self.ratio:.1f} times less)" if math.isfinite(self.ratio) else ""
        return [
            f"{self.pictures} pictures, {self.labels} predicted labels, mean score {self.score:.3f}; "
            f"{self.fraction:.0%} of the grid hidden with the picture's mean colour.",
            f"The score falls by {self.attended} where the map is highest, {self.random} at random cells{times}, "
            f"{self.shifted} at the same shape elsewhere.",
            f"Paired difference to random cells {self.difference}, to the same shape elsewhere "
            f"{self.difference_shifted}; in brackets 95 % intervals over pictures.",
        ]


def faithfulness(
    model: Classifier,
    image_set: ImageSet,
    *,
    limit: int | None = 500,
    fraction: float = 0.2,
    max_labels: int = 5,
    draws: int = 4,
    batch_size: int = 32,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> Faithfulness:
    """Measure the maps of the labels that a model predicts.

    Args:
        model: With any head of this package.
        image_set: Pictures; their targets are not looked at.
        limit: At most so many of them, drawn at random; ``None`` takes all.
        fraction: The part of the grid that is hidden, rounded to whole cells, at least one.
        max_labels: At most so many of a picture's labels, the best ones. A picture without a predicted label counts
            with its best one.
        draws: How often cells are drawn at random.
        batch_size: Pictures scored together.
        seed: Of pictures and cells.
        advance: Is told how many pictures were done.
    """
    if not 0 < fraction < 1:
        raise ConfigError(f"fraction must be between 0 and 1, got {fraction}.")
    predictor = Predictor(model, batch_size=batch_size)
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randperm(len(image_set), generator=generator)[: limit or len(image_set)].sort().values.tolist()
    drops: dict[str, list[float]] = {"attended": [], "random": [], "shifted": []}
    scores: list[float] = []
    labels, hidden = 0, 0.0
    with torch.inference_mode(), evaluating(model), quiet_pillow():
        for images in _batches(predictor, image_set, numbers):
            maps = look(model, predictor.normalised(images))
            before = predictor.from_logits(maps.logits)
            for i in range(len(images)):
                chosen = _labels(before[i].numpy(), predictor.thresholds, max_labels)
                found, hidden = _measure(predictor, images[i], maps, i, chosen, before[i], fraction, draws, generator)
                for way, value in found.items():
                    drops[way].append(value)
                labels += len(chosen)
                scores.append(float(before[i, chosen].mean()))
            advance(len(images))
    if not scores:
        raise DataError("The check needs at least one picture that can be read, got none.")
    differences = {
        way: [a - b for a, b in zip(drops["attended"], drops[way], strict=True)] for way in ("random", "shifted")
    }
    return Faithfulness(
        pictures=len(scores),
        labels=labels,
        fraction=hidden,
        score=float(np.mean(scores)),
        attended=Drop.of(drops["attended"]),
        random=Drop.of(drops["random"]),
        shifted=Drop.of(drops["shifted"]),
        difference=Drop.of(differences["random"]),
        difference_shifted=Drop.of(differences["shifted"]),
    )


def hide(image: Tensor, cells: Tensor) -> Tensor:
    """Fill grid cells of a picture with its mean colour: ``(3, h, w)`` and bool ``(m, r, c)`` to ``(m, 3, h, w)``.

    Pixels belong to the cell that their middle lies in.
    """
    mask = F.interpolate(cells[:, None].float(), size=image.shape[-2:], mode="nearest-exact").bool()
    mean = image.float().mean(dim=(1, 2), keepdim=True).round().to(image.dtype)
    return torch.where(mask, mean, image)


def most_attended(map_: Tensor, count: int) -> Tensor:
    """The cells with the highest values: ``(r, c)`` to bool ``(r, c)``; of equal ones the first."""
    best = map_.flatten().sort(descending=True, stable=True).indices[:count]
    cells = torch.zeros(map_.numel(), dtype=torch.bool)
    cells[best.cpu()] = True
    return cells.view(map_.shape)


def _measure(
    predictor: Predictor,
    image: Tensor,
    maps: Maps,
    number: int,
    chosen: list[int],
    before: Tensor,
    fraction: float,
    draws: int,
    generator: torch.Generator,
) -> tuple[dict[str, float], float]:
    """Mean drop over a picture's labels for each way to hide, and the part of the grid that was hidden."""
    rows, columns = maps.maps.shape[-2:]
    count = max(1, round(fraction * rows * columns))
    attended = torch.stack([most_attended(maps.of(number, label).mean(dim=0), count) for label in chosen])
    random = torch.stack([_random_cells(rows, columns, count, generator) for _ in range(draws)])
    shifted = torch.stack([_elsewhere(cells, generator) for cells in attended])
    after = _scores(predictor, hide(image, torch.cat([attended, random, shifted])))
    own = before[chosen]
    m = len(chosen)
    by_label = torch.arange(m)
    return {
        "attended": float((own - after[:m][by_label, chosen]).mean()),
        "random": float((own - after[m : m + draws][:, chosen]).mean()),
        "shifted": float((own - after[m + draws :][by_label, chosen]).mean()),
    }, count / (rows * columns)


def _batches(predictor: Predictor, image_set: ImageSet, numbers: list[int]) -> Iterator[Tensor]:
    """Prepared pictures; those that cannot be read are left out."""

    def prepared(i: int) -> Tensor | None:
        try:
            return predictor.prepare(Source(image_set.pictures.name(i), image_set.pictures.read(i)))
        except DataError:
            return None

    waiting: list[Tensor] = []
    for picture in in_order(prepared, numbers, workers=predictor.workers, ahead=2 * predictor.batch_size):
        if picture is not None:
            waiting.append(picture)
        if len(waiting) == predictor.batch_size:
            yield torch.stack(waiting)
            waiting = []
    if waiting:
        yield torch.stack(waiting)


def _scores(predictor: Predictor, images: Tensor) -> Tensor:
    return torch.cat([predictor.probabilities(part) for part in torch.split(images, predictor.batch_size)])


def _labels(scores: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", thresholds: object, most: int) -> list[int]:
    best = np.argsort(-scores, kind="stable")
    there = [int(i) for i in best if scores[i] >= np.asarray(thresholds)[i]][:most]
    return there or [int(best[0])]


def _random_cells(rows: int, columns: int, count: int, generator: torch.Generator) -> Tensor:
    cells = torch.zeros(rows * columns, dtype=torch.bool)
    cells[torch.randperm(rows * columns, generator=generator)[:count]] = True
    return cells.view(rows, columns)


def _elsewhere(cells: Tensor, generator: torch.Generator) -> Tensor:
    """The same shape moved by a random step, round the border; never by nothing where there is another place."""
    rows, columns = cells.shape
    step = int(torch.randint(1, max(2, rows * columns), (), generator=generator))
    return cells.roll((step // columns % rows, step % columns), dims=(0, 1))
