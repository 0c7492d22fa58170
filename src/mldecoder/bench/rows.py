"""One cell of the table, and what is computed from several of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

from mldecoder.bench.paper import SOURCE, paper_figures
from mldecoder.bench.settings import BenchSettings, Mode

__all__ = ["OOM", "Row", "against_gap", "beside_paper", "timed"]

OOM = "OOM"


@dataclass(frozen=True)
class Row:
    """What was measured of one head, at one number of classes, in one mode.

    Attributes:
        head: Its name; of a peer the import path.
        classes: N.
        queries: K, or None for a head without queries.
        mode: ``train`` or ``infer``.
        compiled: Whether through ``torch.compile``.
        status: ``ok``, ``OOM`` or ``error: ...``.
        detail: Why it is not ``ok``, or what is special about it.
        batch: Images a step.
        images_per_second: From the median time.
        us_per_image: Microseconds an image, the median; ``us_q1`` and ``us_q3`` are the quartiles.
        repeats: How many timings the median is of; ``steps`` are in each.
        ratio_to_gap: Time an image over that of average pooling in the same run.
        weights_bytes: Parameters and buffers.
        peak_bytes: The most that was allocated at once: weights, input, activations, gradients.
        beyond_weights_bytes: ``peak_bytes`` without the weights.
        peak_ratio_to_gap: ``peak_bytes`` over that of average pooling.
        largest_batch: The largest training batch that fits (of inference, where training is not measured).
        largest_batch_limit: What ended the search: ``OOM``, the end of the search, or an error.
        largest_batch_ratio_to_gap: ``largest_batch`` over that of average pooling.
        multiply_adds: Of a forward pass of one image, counted.
        paper_...: The paper's figures for the whole network, and where they stand.
    """

    head: str
    classes: int
    queries: int | None
    mode: Mode
    compiled: bool
    status: str = "ok"
    detail: str = ""
    batch: int | None = None
    images_per_second: float | None = None
    us_per_image: float | None = None
    us_q1: float | None = None
    us_q3: float | None = None
    repeats: int = 0
    steps: int = 0
    ratio_to_gap: float | None = None
    weights_bytes: int | None = None
    peak_bytes: int | None = None
    beyond_weights_bytes: int | None = None
    peak_ratio_to_gap: float | None = None
    largest_batch: int | None = None
    largest_batch_limit: str | None = None
    largest_batch_ratio_to_gap: float | None = None
    multiply_adds: int | None = None
    paper_images_per_second: int | None = None
    paper_ratio_to_gap: float | None = None
    paper_largest_batch: int | None = None
    paper_multiply_adds: float | None = None
    paper_source: str | None = None

    def __str__(self) -> str:
        queries = f", {self.queries:,} queries" if self.queries else ""
        return f"{self.head}, {self.classes:,} classes{queries}, {self.mode}{', compiled' if self.compiled else ''}"


def timed(row: Row, seconds: Sequence[float], steps: int) -> Row:
    """Fill in speed and spread from the seconds of one step, once a repeat."""
    if not seconds or row.batch is None:
        return row
    us = [1e6 * value / row.batch for value in seconds]
    low, middle, high = quantiles(us, n=4, method="inclusive") if len(us) > 1 else us * 3
    return replace(
        row,
        us_per_image=median(us),
        us_q1=low,
        us_q3=high,
        images_per_second=1e6 / middle,
        repeats=len(us),
        steps=steps,
    )


def against_gap(rows: Sequence[Row]) -> list[Row]:
    """Fill in the ratios to average pooling, where it was measured in the same place of the table."""
    gaps = {(row.classes, row.mode, row.compiled): row for row in rows if row.head == "gap"}
    result = []
    for row in rows:
        gap = gaps.get((row.classes, row.mode, row.compiled))
        if gap is not None:
            row = replace(  # noqa: PLW2901
                row,
                ratio_to_gap=_ratio(row.us_per_image, gap.us_per_image),
                peak_ratio_to_gap=_ratio(row.peak_bytes, gap.peak_bytes),
                largest_batch_ratio_to_gap=_ratio(row.largest_batch, gap.largest_batch),
            )
        result.append(row)
    return result


def beside_paper(row: Row, settings: BenchSettings) -> Row:
    """Fill in the paper's figures, where there are any."""
    paper = paper_figures(settings, row.head, row.classes, row.queries)
    gap = paper_figures(settings, "gap", row.classes, None)
    if paper is None or gap is None:
        return row
    ours, theirs = (p.training if row.mode == "train" else p.inference for p in (paper, gap))
    return replace(
        row,
        paper_images_per_second=ours,
        paper_ratio_to_gap=theirs / ours,
        paper_largest_batch=paper.largest_batch,
        paper_multiply_adds=paper.giga_multiply_adds * 1e9,
        paper_source=SOURCE,
    )


def _ratio(value: float | None, reference: float | None) -> float | None:
    return value / reference if value is not None and reference else None
