"""Charts as SVG inside the page: they take its colours, light or dark, and need no library to be seen.

Every chart is a ``figure`` with a caption; a point tells its numbers when the mouse rests on it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from mldecoder.training.report.axes import Axis, make_axis
from mldecoder.training.report.markup import Html, join, tag

__all__ = ["Series", "histogram", "line_chart", "matrix", "scatter"]

_WIDTH, _HEIGHT = 460, 270
_RIGHT, _TOP, _BOTTOM = 14, 10, 40
_DOTS = 60
"""Up to this many points a line has a dot at each."""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int  # 1 to 6, as in the style sheet
    dashed: bool = False


def line_chart(
    caption: str,
    series: Sequence[Series],
    *,
    x_name: str,
    y_name: str,
    x_bounds: tuple[float, float] | None = None,
    y_bounds: tuple[float, float] | None = None,
    whole_x: bool = False,
    from_zero: bool = False,
    dots: bool = True,
    note: str = "",
) -> Html:
    """Lines over a common axis; values that are not finite are left out."""
    lines = [(one, [p for p in one.points if math.isfinite(p[0]) and math.isfinite(p[1])]) for one in series]
    lines = [(one, points) for one, points in lines if points]
    y = _y_axis([p[1] for _, points in lines for p in points], bounds=y_bounds, from_zero=from_zero)
    x = _x_axis(y, [p[0] for _, points in lines for p in points], bounds=x_bounds, whole=whole_x)
    drawn = []
    for one, points in lines:
        path = "M" + "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)
        style = f"line c{one.colour}" + (" dashed" if one.dashed else "")
        drawn.append(tag("path", d=path, class_=style))
        if dots and len(points) <= _DOTS:
            for a, b in points:
                told = tag("title", f"{one.name}, {x_name} {_told(a)}: {_told(b)}")
                drawn.append(tag("g", tag("circle", cx=x(a), cy=y(b), r=2.6, class_=f"dot c{one.colour}"), told))
    keys = [tag("li", _key(one), one.name) for one, _ in lines]
    legend = tag("ul", *keys, class_="legend") if len(keys) > 1 or not whole_x else Html("")
    return _figure(caption, legend, [_grid(x, y, x_name, y_name), *drawn], note)


def histogram(
    caption: str, values: Sequence[float], *, x_name: str, y_name: str, bins: int = 20, note: str = ""
) -> Html:
    """How many values from 0 to 1 lie in each of ``bins`` equal parts."""
    counts = [0] * bins
    for value in values:
        counts[min(int(value * bins), bins - 1)] += 1
    y = _y_axis([float(max(counts))], from_zero=True, whole=True)
    x = _x_axis(y, [], bounds=(0.0, 100.0))
    drawn = []
    for i, count in enumerate(counts):
        left, right, top = x(100 * i / bins), x(100 * (i + 1) / bins), y(count)
        bar = tag("rect", x=left + 1, y=top, width=right - left - 2, height=max(y.start - top, 0), class_="bar")
        drawn.append(tag("g", bar, tag("title", f"{100 * i / bins:g} to {100 * (i + 1) / bins:g}: {count:,}")))
    return _figure(caption, Html(""), [_grid(x, y, x_name, y_name), *drawn], note)


def scatter(caption: str, points: Sequence[tuple[float, float]], *, x_name: str, y_name: str, note: str = "") -> Html:
    """Dots over a logarithmic axis of counts from 1 on; all in one path, so that 10,000 of them stay small."""
    logs = [(math.log10(a), b) for a, b in points if a >= 1]
    top = max(1.0, math.ceil(max((a for a, _ in logs), default=1.0) - 1e-9))
    y = _y_axis([], bounds=(0.0, 100.0))
    x = Axis(0.0, top, 1.0, start=_left(y), end=_WIDTH - _RIGHT)
    path = "".join(f"M{x(a):.1f} {y(b):.1f}h0" for a, b in logs) or "M0 0"
    grid = _grid(x, y, x_name, y_name, x_texts=[f"{10**tick:,.0f}" for tick in x.ticks])
    return _figure(
        caption, Html(""), [grid, tag("path", d=path, class_="dots small" if len(logs) > 500 else "dots")], note
    )


def matrix(caption: str, counts: Tensor, labels: Sequence[str], *, note: str = "") -> Html:
    """A confusion matrix: rows are true classes, columns guesses, shade the share of the row."""
    k, cell, edge = len(labels), 18, 130
    side = k * cell
    drawn = []
    for i, row in enumerate(counts.tolist()):
        short = labels[i] if len(labels[i]) <= 17 else labels[i][:16] + "…"
        middle = i * cell + cell / 2 + 4
        drawn.append(tag("text", short, tag("title", labels[i]), x=edge - 6, y=middle, class_="end"))
        drawn.append(
            tag(
                "text",
                short,
                tag("title", labels[i]),
                transform=f"translate({edge + middle:g} {side + 8}) rotate(-90)",
                class_="end",
            )
        )
        for j, count in enumerate(row):
            if count:
                share = count / sum(row)
                box = tag(
                    "rect",
                    x=edge + j * cell + 0.5,
                    y=i * cell + 0.5,
                    width=cell - 1,
                    height=cell - 1,
                    class_="right" if i == j else "wrong",
                    fill_opacity=0.12 + 0.88 * share,
                )
                told = (
                    f"{labels[i]} taken for {labels[j]}: {count} of {sum(row)}"
                    if i != j
                    else f"{labels[i]} right: {count} of {sum(row)}"
                )
                drawn.append(tag("g", box, tag("title", told)))
    frame = tag("rect", x=edge, y=0, width=side, height=side, class_="frame")
    width, height = edge + side + 1, side + edge
    picture = tag(
        "svg", frame, *drawn, viewBox=f"0 0 {width} {height}", role="img", aria_label=caption, style=f"width:{width}px"
    )
    return tag("figure", tag("figcaption", caption), tag("div", picture, class_="scroll"), _note(note), class_="matrix")


def _figure(caption: str, legend: Html, drawn: Sequence[str], note: str) -> Html:
    picture = tag(
        "svg", *drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=f"Chart: {caption}. {note}".strip()
    )
    return tag("figure", tag("figcaption", caption), legend, _note(note), picture, class_="chart")


def _note(note: str) -> Html:
    return tag("p", note, class_="hint") if note else Html("")


def _key(series: Series) -> Html:
    style = f"line c{series.colour}" + (" dashed" if series.dashed else "")
    return tag("svg", tag("path", d="M0 5H22", class_=style), viewBox="0 0 22 10", class_="key", aria_hidden="true")


def _left(y: Axis) -> float:
    """Where the drawing begins, right of the numbers along ``y`` and of its name."""
    return 28 + 6.8 * max(len(y.text(tick)) for tick in y.ticks)


def _x_axis(
    y: Axis, values: Sequence[float], *, bounds: tuple[float, float] | None = None, whole: bool = False
) -> Axis:
    return make_axis(values, start=_left(y), end=_WIDTH - _RIGHT, bounds=bounds, whole=whole, count=8 if whole else 5)


def _y_axis(
    values: Sequence[float],
    *,
    bounds: tuple[float, float] | None = None,
    from_zero: bool = False,
    whole: bool = False,
) -> Axis:
    start, end = _HEIGHT - _BOTTOM, _TOP
    return make_axis(values, start=start, end=end, bounds=bounds, from_zero=from_zero, whole=whole)


def _grid(x: Axis, y: Axis, x_name: str, y_name: str, *, x_texts: Sequence[str] | None = None) -> Html:
    parts = []
    for tick in y.ticks:
        parts.append(tag("line", x1=x.start, x2=x.end, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(tag("text", y.text(tick), x=x.start - 6, y=y(tick) + 4, class_="end"))
    for tick, text in zip(x.ticks, x_texts or [x.text(tick) for tick in x.ticks], strict=True):
        parts.append(tag("line", x1=x(tick), x2=x(tick), y1=y.start, y2=y.start + 4, class_="axis"))
        parts.append(tag("text", text, x=x(tick), y=y.start + 17, class_="middle"))
    parts.append(tag("line", x1=x.start, x2=x.end, y1=y.start, y2=y.start, class_="axis"))
    parts.append(tag("text", x_name, x=(x.start + x.end) / 2, y=_HEIGHT - 5, class_="middle name"))
    middle = (y.start + y.end) / 2
    parts.append(tag("text", y_name, transform=f"translate(10 {middle:g}) rotate(-90)", class_="middle name"))
    return join(parts)


def _told(value: float) -> str:
    return f"{value:.4g}"
