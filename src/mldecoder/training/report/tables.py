"""Tables that can be sorted, and cells with a bar in them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mldecoder.training.report import markup
from mldecoder.training.report.markup import Html, tag

__all__ = ["Cell", "bar", "count", "name", "number", "percent", "table", "text"]


@dataclass(frozen=True)
class Cell:
    """What a cell shows and what it is sorted by; the empty string comes last."""

    shown: str
    key: str | None = None
    numeric: bool = False
    heading: bool = False


def name(value: str) -> Cell:
    """The name of a row."""
    return Cell(markup.name(value), heading=True)


def text(value: str) -> Cell:
    """Any other text."""
    return Cell(markup.name(value))


def count(value: int) -> Cell:
    """A whole number."""
    return Cell(f"{value:,}", str(value), numeric=True)


def number(value: float | None) -> Cell:
    """A number of any size; a dash without one."""
    if value is None or not math.isfinite(value):
        return Cell("–", "", numeric=True)
    shown = f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.4g}"
    return Cell(shown, f"{value:.8g}", numeric=True)


def percent(fraction: float) -> Cell:
    """A fraction as percent; a dash for NaN."""
    if math.isnan(fraction):
        return Cell("–", "", numeric=True)
    return Cell(f"{100 * fraction:.1f}", f"{fraction:.6f}", numeric=True)


def bar(fraction: float) -> Cell:
    """A fraction as a bar with its percentage behind it."""
    plain = percent(fraction)
    if plain.key == "":
        return plain
    fill = tag("i", style=f"width:{100 * fraction:.1f}%")
    return Cell(tag("div", tag("span", fill), tag("span", plain.shown), class_="meter"), plain.key, numeric=True)


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    caption: str,
    sorted_by: int | None = None,
    extra: Sequence[int] = (),
    style: str = "wide",
    identity: str = "",
) -> Html:
    """A sortable table.

    Args:
        heads: Names of the columns.
        rows: One cell for each column.
        caption: What the table shows, for those who cannot see it.
        sorted_by: The column by which the rows come sorted downwards.
        extra: Columns that a narrow window leaves out.
        style: Classes of the style sheet.
        identity: The element's id.
    """
    numeric = [bool(rows) and rows[0][i].numeric for i in range(len(heads))]

    styles = [" ".join(["num"] * numeric[i] + ["extra"] * (i in extra)) or None for i in range(len(heads))]
    top = [
        tag(
            "th",
            tag("button", head, type="button"),
            scope="col",
            class_=styles[i],
            aria_sort="descending" if i == sorted_by else None,
        )
        for i, head in enumerate(heads)
    ]
    body = [
        tag(
            "tr",
            *(
                tag("th", cell.shown, scope="row", class_=style, data_v=cell.key)
                if cell.heading
                else tag("td", cell.shown, class_=style, data_v=cell.key)
                for cell, style in zip(row, styles, strict=True)
            ),
        )
        for row in rows
    ]
    whole = tag("thead", tag("tr", *top)), tag("tbody", *body)
    return tag("table", *whole, class_=f"sortable {style}", aria_label=caption, id=identity or None)
