"""What tables there are, what each needs, how long it takes, and every figure that the paper gives."""

from collections.abc import Iterator

from mldecoder.reproduce.plan import estimate
from mldecoder.reproduce.sources import SOURCES
from mldecoder.reproduce.table import BUDGETS, Row, Table

__all__ = ["describe"]

_SMALL = {
    "multi-label": "a COCO folder, or any pictures with several labels",
    "zero-shot": "a COCO folder with its 80 classes",
    "single-label": "class folders, or a table with a label a picture",
}


def describe(table: Table, seeds: int = 3) -> Iterator[str]:
    """A table in lines of text."""
    yield f"{table.name}: {table.title}"
    yield f"  in the paper: {table.source}" if not table.ours else "  ours: not in the paper"
    if table.method == "bench":
        yield "  needs: nothing; full: a GPU"
    else:
        source = SOURCES[table.data]
        yield f"  needs: small: {_SMALL[table.kind]}; full: {source.name} ({source.layout})"
    for budget in BUDGETS:
        yield f"  takes, {budget}: {estimate(table, budget, seeds)}"
    yield "  the paper's figures:"
    for row in table.rows:
        yield f"    {row.name}: {_figures(row, table)}"
    for claim in table.claims:
        yield f"  claim: {claim.text}"
    if table.note:
        yield f"  note: {table.note}"


def _figures(row: Row, table: Table) -> str:
    given = [f"{name} {row.paper[name]:g}" for name in table.metrics if name in row.paper]
    text = ", ".join(given) or "not given"
    told = " (cited from others, not run)" if row.cited else f" ({row.note})" if row.note else ""
    return text + told
