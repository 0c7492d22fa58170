"""The part about labels that were never trained: the figures of seen, unseen and all labels side by side."""

from mldecoder.training.report import tables
from mldecoder.training.report.data import ReportData
from mldecoder.training.report.markup import Html, join, tag

__all__ = ["section"]

_LISTS = {"seen_": "seen", "unseen_": "unseen (ZSL)", "": "all (GZSL)"}


def section(data: ReportData) -> Html:
    """A row a list of labels; nothing where all were trained."""
    if not data.unseen:
        return Html("")
    names = [name for name in data.metrics if (name == "mAP" or "@" in name) and "seen_" not in name]
    counts = {"seen_": len(data.labels) - len(data.unseen), "unseen_": len(data.unseen), "": len(data.labels)}
    rows = []
    for prefix, name in _LISTS.items():
        values = [data.metrics.get(prefix + metric) for metric in names]
        cells = [tables.Cell("–", "", numeric=True) if v is None else tables.percent(v / 100) for v in values]
        rows.append([tables.name(name), tables.count(counts[prefix]), *cells])
    told = (
        "In percent. Unseen labels were never trained; the best weights were chosen by the mAP of the seen ones. "
        "At K: every picture is given the K best labels of the list; counted over all pictures together."
    )
    made = tables.table(["Labels", "Number", *names], rows, caption="Seen, unseen and all labels")
    return join([tag("p", told, class_="soft"), tag("div", made, class_="scroll")])
