"""The paper's throughput table, to stand beside ours."""

from dataclasses import dataclass

from mldecoder.bench.settings import BenchSettings

__all__ = ["SOURCE", "PaperFigures", "paper_figures"]

SOURCE = (
    'arXiv 2111.12933, appendix, table "Comparison of throughput indices": TResNet-M with the head, 224 px, '
    "V100 16GB, mixed precision, at 80% of the largest training batch"
)


@dataclass(frozen=True)
class PaperFigures:
    """A row of the table; the network's figures, not the head's alone."""

    training: int  # img/s
    inference: int  # img/s
    largest_batch: int
    giga_multiply_adds: float


_TABLE = {  # (head, classes) -> figures; ML-Decoder with 100 queries
    ("gap", 100): PaperFigures(706, 2915, 520, 5.7),
    ("gap", 1000): PaperFigures(703, 2910, 512, 5.7),
    ("gap", 5000): PaperFigures(698, 2846, 504, 5.8),
    ("transformer-decoder", 100): PaperFigures(556, 2496, 424, 6.6),
    ("transformer-decoder", 1000): PaperFigures(44, 916, 112, 14.2),
    ("transformer-decoder", 5000): PaperFigures(2, 17, 4, 61.1),
    ("ml-decoder", 100): PaperFigures(575, 2588, 464, 6.3),
    ("ml-decoder", 1000): PaperFigures(568, 2563, 456, 6.3),
    ("ml-decoder", 5000): PaperFigures(562, 2512, 448, 6.4),
}
_QUERIES, _WIDTH, _SIZE, _TOKENS = 100, 768, 224, (7, 7)


def paper_figures(settings: BenchSettings, head: str, classes: int, queries: int | None) -> PaperFigures | None:
    """The paper's figures for a head, where ours is measured in the paper's sizes."""
    place = settings.size == _SIZE if settings.backbone else settings.tokens == _TOKENS
    if not place or settings.width != _WIDTH or (head == "ml-decoder" and queries != _QUERIES):
        return None
    return _TABLE.get((head, classes))
