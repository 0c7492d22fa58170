"""The paper's throughput table, through the bench; its figures stand in :mod:`mldecoder.bench.paper`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mldecoder.bench.paper import paper_figures
from mldecoder.bench.settings import HEADS, BenchSettings
from mldecoder.reproduce.settings import COCO
from mldecoder.reproduce.table import Budget, Row, Table

if TYPE_CHECKING:
    from mldecoder.bench.rows import Row as Measured

__all__ = ["TABLE", "bench_settings", "measured_rows"]

_NAMES = {"gap": "GAP", "transformer-decoder": "transformer-decoder", "ml-decoder": "ML-Decoder"}
_CLASSES = (100, 1000, 5000)
_TINY = 50  # the tiny budget has so many times fewer classes: the transformer-decoder's 5,000 take gigabytes
_PAPER = BenchSettings(device="cpu", classes=_CLASSES, backbone="tresnet_m")


def bench_settings(budget: Budget, backbone: str | None) -> BenchSettings:
    """What the bench is asked for; ``full`` is the paper's way and needs a GPU."""
    if budget == "full":
        return BenchSettings(
            device="cuda",
            classes=_CLASSES,
            backbone=backbone or "tresnet_m",
            batch=None,
            autocast=True,
            memory_cap=16 * 2**30,
        )
    if budget == "small":
        return BenchSettings(classes=_CLASSES, backbone=backbone or "resnet50", batch=64, repeats=5)
    return BenchSettings(
        device="cpu",
        classes=tuple(classes // _TINY for classes in _CLASSES),
        features=16,
        tokens=(2, 2),
        width=16,
        ff_width=32,
        batch=2,
        repeats=1,
        repeat_seconds=0.001,
    )


def measured_rows(rows: "Sequence[Measured]", budget: Budget) -> dict[str, dict[str, float]]:
    """What the bench found, by the names of the table's rows."""
    times = _TINY if budget == "tiny" else 1
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        own = found.setdefault(_named(row.head, times * row.classes), {})
        values = {
            f"{row.mode} img/s": row.images_per_second,
            "largest batch": row.largest_batch,
            "GMAC": None if row.multiply_adds is None else row.multiply_adds / 1e9,
        }
        own |= {key: float(value) for key, value in values.items() if value is not None}
    for row in rows:
        name, gap = (_named(head, times * row.classes) for head in (row.head, "gap"))
        found[name] |= _beside_gap(found[name], found.get(gap, {}))
    return found


def _beside_gap(own: Mapping[str, float], gap: Mapping[str, float]) -> dict[str, float]:
    """Speeds in percent of average pooling's, which another machine changes less than the speeds."""
    speeds = ("train img/s", "infer img/s")
    return {f"{key} of GAP's %": 100 * own[key] / gap[key] for key in speeds if key in own and gap.get(key)}


def _named(head: str, classes: int) -> str:
    return f"{_NAMES[head]}, {classes:,} classes"


def _paper_rows() -> tuple[Row, ...]:
    rows = []
    for head in HEADS:
        for classes in _CLASSES:
            figures, gap = (paper_figures(_PAPER, name, classes, 100) for name in (head, "gap"))
            if figures is None or gap is None:
                continue
            own = {"train img/s": float(figures.training), "infer img/s": float(figures.inference)}
            theirs = {"train img/s": float(gap.training), "infer img/s": float(gap.inference)}
            rest = {"largest batch": float(figures.largest_batch), "GMAC": figures.giga_multiply_adds}
            rows.append(Row(_named(head, classes), paper=own | _beside_gap(own, theirs) | rest))
    return tuple(rows)


TABLE = Table(
    name="throughput",
    title="Speed, largest batch and multiply-adds of heads",
    source='Table:througput_measurements, appendix "Speed Comparison for Different Classification Heads"',
    data="none",
    kind="multi-label",
    metrics=("infer img/s of GAP's %", "train img/s of GAP's %", "infer img/s", "train img/s", "largest batch", "GMAC"),
    base="GAP, 100 classes",
    rows=_paper_rows(),
    full=COCO,
    note=(
        "The paper's figures are of TResNet-M at 224 px on a V100 of 16 GB in mixed precision, at 80% of the largest "
        "batch. ML-Decoder has 100 queries, the transformer-decoder one a class. Its text says "
        "that ML-Decoder takes 15% of the inference speed whatever the number of classes; its figures say 11 to 12%."
    ),
    method="bench",
)
