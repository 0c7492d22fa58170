"""The part about labels: figures of each, precision-recall curves, and confused pairs."""

from collections.abc import Sequence

from mldecoder.training.report import tables
from mldecoder.training.report.charts import Series, histogram, line_chart, matrix, scatter
from mldecoder.training.report.confusion import confused_pairs, confusion_matrix
from mldecoder.training.report.data import ReportData
from mldecoder.training.report.figures import THRESHOLD, ClassFigures
from mldecoder.training.report.markup import Html, join, tag
from mldecoder.training.report.precision_recall import Point, curve

__all__ = ["confusion_section", "curves_section", "labels_section"]

FEW = 40
"""Up to this many labels each has its bar in plain sight, and a matrix can be read."""

MANY = 300
"""Beyond this many labels only the best and the worst are listed."""

ENDS = 30
"""How many of the best and of the worst are listed then."""


def labels_section(data: ReportData, figures: ClassFigures) -> Html:
    """All labels as bars; with many of them their distribution, and the best and the worst."""
    order, k = figures.order, len(data.labels)
    parts = [_explain(data, figures)]
    if k > FEW and order:
        values = [figures.main[j].item() for j in order]
        dots = [(float(figures.positives[j]), 100 * figures.main[j].item()) for j in order]
        name, unit = figures.name, "pictures with the label"
        parts.append(
            tag(
                "div",
                histogram(f"{name} of {len(order):,} labels", values, x_name=f"{name}, %", y_name="labels"),
                scatter(f"{name} and how often a label occurs", dots, x_name=unit, y_name=f"{name}, %"),
                class_="charts",
            )
        )
    if k > MANY:
        best, worst = order[:ENDS], order[max(ENDS, len(order) - ENDS) :][::-1]
        lists = [
            tag(
                "div",
                tag("h3", f"{title} {len(chosen)} labels"),
                tag("div", _table(data, figures, chosen, f"{title} labels", sort=False), class_="scroll"),
            )
            for title, chosen in (("Worst", worst), ("Best", best))
            if chosen
        ]
        return join([*parts, tag("div", *lists, class_="two")])
    made = _table(data, figures, [*order, *(j for j in range(k) if figures.main[j].isnan())], "All labels", sort=True)
    if k <= FEW:
        return join([*parts, tag("div", made, class_="scroll")])
    search = tag(
        "input", type="search", placeholder="Find a label", aria_label="Find a label", data_filter="all-labels"
    )
    return join([*parts, tag("h3", "All labels"), search, tag("div", made, class_="tall", tabindex="0")])


def curves_section(data: ReportData, figures: ClassFigures) -> Html:
    """Precision over recall of all entries together, and of the best, the middle and the worst label."""
    ranked = figures.ranking
    if not ranked:
        return tag("p", "No label has a positive picture, so there is no curve.", class_="soft")
    whole = curve(data.scores, data.targets)
    series = [Series("all labels together", _percent(whole), 1)]
    shown = {ranked[0]: ("best", 3), ranked[len(ranked) // 2]: ("median", 5), ranked[-1]: ("worst", 2)}
    for j, (rank, colour) in shown.items():
        told = f"AP {100 * figures.average_precision[j].item():.1f}, {_pictures(int(figures.positives[j]))}"
        points = _percent(curve(data.scores[:, j], data.targets[:, j]))
        series.append(Series(f"{rank}: {data.labels[j]} ({told})", points, colour))
    by_threshold = [
        Series("precision", [(point.threshold, 100 * point.precision) for point in whole], 1),
        Series("recall", [(point.threshold, 100 * point.recall) for point in whole], 4, dashed=True),
    ]
    percent = (0.0, 100.0)
    return tag(
        "div",
        line_chart(
            "Precision over recall",
            series,
            x_name="recall, %",
            y_name="precision, %",
            x_bounds=percent,
            y_bounds=percent,
            dots=False,
        ),
        line_chart(
            "Precision and recall over one threshold for all labels",
            by_threshold,
            x_name="threshold",
            y_name="%",
            x_bounds=(0.0, 1.0),
            y_bounds=percent,
            dots=False,
        ),
        class_="charts",
    )


def confusion_section(data: ReportData) -> Html:
    """Which class is taken for which (single-label)."""
    pairs = confused_pairs(data.scores, data.targets)
    if not pairs:
        return tag("p", "No picture was taken for another class.", class_="soft")
    rows = [
        [
            tables.name(data.labels[pair.truth]),
            tables.text(data.labels[pair.guess]),
            tables.count(pair.pictures),
            tables.bar(pair.pictures / pair.of),
        ]
        for pair in pairs
    ]
    heads = ["Picture shows", "Taken for", "Pictures", "Share of the class, %"]
    listed = tag("div", tables.table(heads, rows, caption="Most confused pairs", sorted_by=2), class_="scroll")
    if len(data.labels) > FEW:
        return listed
    counts = confusion_matrix(data.scores, data.targets)
    told = "Rows: what the picture shows. Columns: what it was taken for. Shade: share of the row."
    return join([matrix("Confusion matrix", counts, data.labels, note=told), tag("h3", "Most confused pairs"), listed])


def _explain(data: ReportData, figures: ClassFigures) -> Html:
    told = [f"{figures.name} in percent, measured on the validation part."]
    if data.task == "multi-label":
        told.append(f"Precision and recall are at the threshold {THRESHOLD:g}.")
    if figures.unknown.any() and data.task == "multi-label":
        told.append("Pictures whose label is unknown take no part.")
    parts = [tag("p", " ".join(told), class_="soft")]
    if figures.without:
        some = [data.labels[j] for j in figures.without[:20]]
        more = f" and {len(figures.without) - 20:,} more" if len(figures.without) > 20 else ""
        count = len(figures.without)
        verb = "label has" if count == 1 else "labels have"
        parts.append(
            tag("p", f"{count:,} {verb} no positive picture here and no part in any mean: {', '.join(some)}{more}.")
        )
    return join(parts)


def _table(data: ReportData, figures: ClassFigures, chosen: Sequence[int], caption: str, *, sort: bool) -> Html:
    unknown = data.task == "multi-label" and bool(figures.unknown.any())
    rows = []
    for j in chosen:
        row = [tables.name(data.labels[j]), tables.bar(figures.main[j].item()), tables.count(int(figures.positives[j]))]
        if unknown:
            row.append(tables.count(int(figures.unknown[j])))
        if data.unseen:
            row.append(tables.text("never" if data.labels[j] in data.unseen else "yes"))
        rows.append([*row, *(tables.percent(values[j].item()) for values in figures.others.values())])
    more = [*(["Unknown"] if unknown else []), *(["Trained"] if data.unseen else [])]
    heads = ["Label", figures.name, "Pictures", *more, *figures.others]
    return tables.table(
        heads,
        rows,
        caption=caption,
        sorted_by=1 if sort else None,
        extra=range(3, len(heads)),
        style="wide bars",
        identity="all-labels" if sort else "",
    )


def _percent(points: list[Point]) -> list[tuple[float, float]]:
    """A line from recall 0 on."""
    if not points:
        return []
    return [(0.0, 100 * points[0].precision), *((100 * point.recall, 100 * point.precision) for point in points)]


def _pictures(count: int) -> str:
    return f"{count:,} picture" if count == 1 else f"{count:,} pictures"
