"""How tables are run in each budget.

``tiny`` goes through the same code on drawn pictures in seconds and says nothing about heads; ``small`` asks the
table's question on a small real part; ``full`` is the paper's own setting.
"""

from mldecoder.reproduce.table import Budget, Kind, Setting, Table

__all__ = ["CARS", "CIFAR", "COCO", "IMAGENET", "NUS_WIDE", "OPEN_IMAGES", "VOC", "setting_of"]

_TINY = (
    "image.size=32",
    "training.epochs=1",
    "training.batch_size=20",
    "training.ema_decay=0.5",
    "training.precision=fp32",
    "data.workers=0",
)
_TINY_DECODER = ("head.width=16", "head.ff_width=32", "head.heads=2")
_DRAWN = ("data.options={count: 60}",)
_TEST_BACKBONE = ("backbone.name=test_resnet", "backbone.pretrained=false")

_SETTINGS: dict[tuple[Budget, Kind], Setting] = {
    ("tiny", "multi-label"): Setting("scenes", (*_TINY, *_DRAWN), _TINY_DECODER, 60),
    ("tiny", "zero-shot"): Setting("scenes-zsl", (*_TINY, *_DRAWN), _TINY_DECODER, 60),
    ("tiny", "single-label"): Setting("quick-cpu", (*_TINY, *_TEST_BACKBONE), _TINY_DECODER, 48),
    # `quick` was chosen on a fifth of the training part of the same COCO pictures: benchmarks/coco-search.md.
    ("small", "multi-label"): Setting("quick", (), ("head.dropout=0.2",)),
    ("small", "zero-shot"): Setting("coco-zsl", (), ("head.dropout=0.2",)),
    ("small", "single-label"): Setting("quick", (), ("head.dropout=0.2",)),
}

# The paper's tables of heads and queries are with TResNet-M.
COCO = Setting("coco", ("backbone.name=tresnet_m",), pictures=82_081)
VOC = Setting("voc", pictures=5_011)
NUS_WIDE = Setting("nus-wide-zsl", pictures=161_789)
OPEN_IMAGES = Setting("open-images", pictures=9_000_000)
IMAGENET = Setting("imagenet-a2", pictures=1_281_167)
CIFAR = Setting("cifar100", pictures=50_000)
CARS = Setting("stanford-cars", pictures=8_144)


def setting_of(table: Table, budget: Budget) -> Setting:
    """How a table is run in a budget."""
    return table.full if budget == "full" else _SETTINGS[budget, table.kind]
