"""The paper's tables on MS-COCO and Pascal-VOC; figures and labels are those of ml-decoder.tex (arXiv:2111.12933)."""

from mldecoder.reproduce.settings import COCO, VOC
from mldecoder.reproduce.table import Budget, Claim, Row, Setting, Table

__all__ = ["TABLES"]

_GAP = ("head.kind=gap",)
_ALL = ("head.num_queries={N}",)
_QUARTER = ("head.num_queries={N/4}", "head.seed={seed}")  # groups at random, others for each seed
_BIG: tuple[Budget, ...] = ("tiny", "full")  # rows that differ from others by their backbone alone

_QUERY_TYPES = Table(
    name="query-types",
    title="ML-Decoder with different types of queries on MS-COCO, K = N",
    source='Table:coco_query_types, appendix "Query Types Comparison"',
    data="coco",
    kind="multi-label",
    metrics=("mAP",),
    base="fixed random",
    rows=(
        Row("fixed random", (*_ALL, "head.queries=fixed"), {"mAP": 88.1}),
        Row("learnable", (*_ALL, "head.queries=learnable"), {"mAP": 88.1}),
        Row("fixed text", (*_ALL, "head.queries=text"), {"mAP": 88.1}, note="GloVe-50, projected to the width"),
    ),
    claims=(
        Claim("Learnable queries lead to the same accuracy as fixed ones", "learnable", "fixed random", "equal"),
        Claim("Text queries lead to the same accuracy as random ones", "fixed text", "fixed random", "equal"),
    ),
    full=COCO,
    note="The table names no backbone; 88.1 is TResNet-M's figure in the table of heads.",
)

_HEADS_COCO = Table(
    name="heads-coco",
    title="Classification heads on MS-COCO",
    source='Table:coco_decoder_schems, section "Comparing Different Classification Heads"',
    data="coco",
    kind="multi-label",
    metrics=("mAP", "GMAC"),
    base="GAP",
    rows=(
        Row("GAP", _GAP, {"mAP": 87.0, "GMAC": 23.0}),
        Row(
            "GAP, no cutout or mixup",
            (*_GAP, "augment.cutout=0.0", "augment.mixup=0.0"),
            budgets=("tiny", "small"),
            note="not in the paper: what suited average pooling best in benchmarks/coco-search.md",
        ),
        Row("transformer-decoder", ("head.kind=transformer-decoder",), {"mAP": 88.1, "GMAC": 24.1}),
        Row("ML-Decoder K=N/4", _QUARTER, {"mAP": 88.0, "GMAC": 23.6}),
        Row("ML-Decoder K=N", _ALL, {"mAP": 88.1, "GMAC": 23.9}),
    ),
    claims=(
        Claim("ML-Decoder improves on GAP, by more than a point", "ML-Decoder K=N", "GAP", "above"),
        Claim(
            "ML-Decoder also improves on GAP with what suits that best (ours to test)",
            "ML-Decoder K=N",
            "GAP, no cutout or mixup",
            "above",
        ),
        Claim("The transformer-decoder improves on GAP", "transformer-decoder", "GAP", "above"),
        Claim(
            "Transformer-decoder and ML-Decoder reach the same accuracy",
            "ML-Decoder K=N",
            "transformer-decoder",
            "equal",
        ),
        Claim("Group decoding with N/K = 4 has a minimal impact", "ML-Decoder K=N/4", "ML-Decoder K=N", "equal"),
    ),
    full=COCO,
    note="N = 80 on COCO, so K is 80 and 20. The paper's Gflops are multiply-adds.",
)

_COCO = Table(
    name="coco",
    title="Comparison with other work on MS-COCO",
    source='Table:coco_full_comparison, section "MS-COCO"',
    data="coco",
    kind="multi-label",
    metrics=("mAP",),
    base="ASL (GAP), ResNet-101",
    rows=(
        Row("ML-GCN, ResNet-101", paper={"mAP": 83.0}, budgets=()),
        Row("KSSNET, ResNet-101", paper={"mAP": 83.7}, budgets=()),
        Row("SSGRL, ResNet-101, 576 px", paper={"mAP": 83.8}, budgets=()),
        Row("MS-CMA, ResNet-101", paper={"mAP": 83.8}, budgets=()),
        Row("Q2L, TResNet-L", paper={"mAP": 89.2}, budgets=()),
        Row("ASL (GAP), ResNet-101", _GAP, {"mAP": 85.0}, recipe="coco-resnet101", note="small: --backbone"),
        Row("ML-Decoder, ResNet-101", _ALL, {"mAP": 87.1}, recipe="coco-resnet101", note="small: --backbone"),
        Row("ASL (GAP), TResNet-L", _GAP, {"mAP": 88.4}, budgets=_BIG),
        Row("ML-Decoder, TResNet-L", _ALL, {"mAP": 90.0}, budgets=_BIG),
    ),
    claims=(
        Claim("ML-Decoder improves results (ResNet-101)", "ML-Decoder, ResNet-101", "ASL (GAP), ResNet-101", "above"),
        Claim("ML-Decoder improves results (TResNet-L)", "ML-Decoder, TResNet-L", "ASL (GAP), TResNet-L", "above"),
    ),
    full=Setting("coco", pictures=82_081),
    note="448 px where nothing else is said. ASL is average pooling with the same loss, so it is run too.",
)

_FLOPS = Table(
    name="flops",
    title="mAP against multiply-adds on MS-COCO over backbones, K = N",
    source='fig:flops_vs_map_coco, section "Comparing Different Classification Heads" (a plot)',
    data="coco",
    kind="multi-label",
    metrics=("mAP", "GMAC"),
    against="GMAC",
    base="M, GAP",
    rows=tuple(
        Row(
            f"{size}, {head}",
            overrides,
            figures,
            at={"full": (f"backbone.name={full}",), "small": (f"backbone.name={small}",)},
            note=note,
        )
        for size, full, small, given, note in (
            ("S", "resnet34", "mobilenetv2_100", ({}, {}), "TResNet-S is not in timm: ResNet-34, of equal run time"),
            (
                "M",
                "tresnet_m",
                "tf_efficientnet_lite0",
                ({"mAP": 87.0, "GMAC": 23.0}, {"mAP": 88.1, "GMAC": 23.9}),
                "figures of the table of heads",
            ),
            ("L", "tresnet_v2_l", "resnet50", ({}, {"mAP": 90.0, "GMAC": 36.2}), "figures of other tables"),
        )
        for head, overrides, figures in (("GAP", _GAP, given[0]), ("ML-Decoder", _ALL, given[1]))
    ),
    claims=(
        Claim("ML-Decoder improves the middle backbone", "M, ML-Decoder", "M, GAP", "above"),
        Claim("ML-Decoder improves the smallest backbone", "S, ML-Decoder", "S, GAP", "above"),
        Claim("ML-Decoder improves the largest backbone", "L, ML-Decoder", "L, GAP", "above"),
    ),
    full=COCO,
    note=(
        "A plot: of its six points the paper gives in numbers only those that stand in other tables. In the small "
        "budget S, M and L are mobilenetv2_100, tf_efficientnet_lite0 and resnet50."
    ),
)


def _resolution(name: str, recipe: str, small: int, tiny: int, figures: dict[str, float], *more: str) -> Row:
    at: dict[Budget, tuple[str, ...]] = {
        "small": (f"image.size={small}",),
        "tiny": (f"image.size={tiny}",),
        "full": more,
    }
    return Row(name, _ALL, figures, at=at, recipe=recipe)


_RESOLUTIONS = Table(
    name="resolutions",
    title="ML-Decoder on MS-COCO at different sizes of the picture",
    source='Table:coco_resolution_comparison, appendix "MS-COCO Results for Different Input Resolutions"',
    data="coco",
    kind="multi-label",
    metrics=("mAP", "GMAC"),
    base="TResNet-L, 448 px",
    rows=(
        _resolution("TResNet-L, 224 px", "coco-224", 112, 32, {"mAP": 85.5, "GMAC": 9.3}),
        _resolution("TResNet-L, 448 px", "coco", 224, 48, {"mAP": 90.0, "GMAC": 36.2}),
        _resolution(
            "TResNet-L, 640 px", "coco-640", 320, 64, {"mAP": 91.1, "GMAC": 73.5}, "backbone.name=tresnet_v2_l"
        ),
        Row(
            "TResNet-XL, 640 px",
            _ALL,
            {"mAP": 91.4, "GMAC": 103.8},
            recipe="coco-640",
            budgets=_BIG,
            note="timm's tresnet_xl is another network than the authors'",
        ),
    ),
    claims=(
        Claim("448 px beat 224 px", "TResNet-L, 448 px", "TResNet-L, 224 px", "above"),
        Claim("640 px beat 448 px", "TResNet-L, 640 px", "TResNet-L, 448 px", "above"),
    ),
    full=Setting("coco", pictures=82_081),
    note="In the small budget every size is half of the one named, with the backbone that is asked for.",
)

_GROUPS = Table(
    name="groups",
    title="Which classes share a query: random, by meaning, neighbours in the list (K = N/4)",
    source='section "ML-Decoder Design" (2), claims in the text; the figures are those of Table:coco_decoder_schems',
    data="coco",
    kind="multi-label",
    metrics=("mAP",),
    base="random groups",
    rows=(
        Row("full decoding, K=N", _ALL, {"mAP": 88.1}),
        Row("random groups", (*_QUARTER, "head.groups=random"), {"mAP": 88.0}),
        Row("semantic groups", (*_QUARTER, "head.groups=semantic"), note="balanced k-means, GloVe"),
        Row("groups in the order of the list", (*_QUARTER, "head.groups=ordered")),
    ),
    claims=(
        Claim("Random groups are comparable to full decoding", "random groups", "full decoding, K=N", "equal"),
        Claim("Clustering by meaning is not needed: random is as good", "semantic groups", "random groups", "equal"),
    ),
    full=COCO,
    note="The paper measured random groups only, and calls clustering by meaning an alternative.",
)

_VOC = Table(
    name="voc",
    title="Comparison with other work on Pascal-VOC 2007",
    source='Table:pascal_voc, appendix "Pascal-VOC Training Details and Results"',
    data="voc",
    kind="multi-label",
    metrics=("mAP",),
    base="ASL (GAP)",
    rows=(
        Row("RNN", paper={"mAP": 91.9}, budgets=()),
        Row("FeV+LV", paper={"mAP": 92.0}, budgets=()),
        Row("ML-GCN", paper={"mAP": 94.0}, budgets=()),
        Row("SSGRL", paper={"mAP": 95.0}, budgets=()),
        Row("BMML", paper={"mAP": 95.0}, budgets=()),
        Row("Q2L", paper={"mAP": 96.1}, budgets=()),
        Row("ASL (GAP)", _GAP, {"mAP": 95.8}),
        Row("ML-Decoder", _ALL, {"mAP": 96.6}),
    ),
    claims=(Claim("ML-Decoder improves on average pooling with the same loss", "ML-Decoder", "ASL (GAP)", "above"),),
    full=VOC,
)

TABLES = (_QUERY_TYPES, _HEADS_COCO, _COCO, _FLOPS, _RESOLUTIONS, _GROUPS, _VOC)
