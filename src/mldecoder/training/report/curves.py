"""How training went: loss, figures and learning rate over the epochs, beside other runs where there are any."""

import math
from collections.abc import Mapping

from mldecoder.training.report import tables
from mldecoder.training.report.charts import Series, line_chart
from mldecoder.training.report.data import History, ReportData
from mldecoder.training.report.headline import duration
from mldecoder.training.report.markup import Html, join, tag

__all__ = ["section"]

_OWN = "this run"
_NOT_METRICS = {"epoch", "seconds", "step", "steps", "images", "images_per_second"}
_COLOURS = 6
_WEIGHTS = {True: "averaged weights (EMA)", False: "plain weights"}


def section(data: ReportData) -> Html:
    """Charts, the comparison, and the table of all epochs."""
    if not data.history:
        return tag("p", "No epoch was recorded.", class_="soft")
    runs = {_OWN: data.history, **data.compare}
    main = data.main_metric
    charts = [
        _chart("Training loss", runs, ["loss"], "loss"),
        _chart(f"{main} on the validation part", runs, [f"ema_{main}", main], f"{main}, %", note=_best_note(data)),
        _by_lists(data),
        _others(data),
        _chart("Learning rate", {_OWN: data.history}, _rates(data.history), "learning rate", from_zero=True),
    ]
    parts = [tag("div", *charts, class_="charts")]
    if data.compare:
        parts += [tag("h3", "Side by side"), tag("div", _side_by_side(data, runs), class_="scroll")]
    every = tag("div", _epochs(data.history), class_="scroll")
    parts.append(tag("details", tag("summary", "All epochs in numbers"), tag("div", every)))
    return join(parts)


def _chart(
    caption: str, runs: Mapping[str, History], keys: list[str], y_name: str, *, from_zero: bool = False, note: str = ""
) -> Html:
    """One line a run and key; the averaged weights (EMA) are drawn through, the weights themselves dashed."""
    series = []
    for number, (run, history) in enumerate(runs.items()):
        there = [key for key in keys if any(key in epoch for epoch in history)]
        for place, key in enumerate(there):
            words = [run] if len(runs) > 1 else []
            if len(there) > 1:
                words.append(_WEIGHTS[key.startswith("ema_")] if _is_pair(there) else key)
            colour = (number if len(runs) > 1 or _is_pair(there) else place) % _COLOURS + 1
            dashed = _is_pair(there) and not key.startswith("ema_")
            series.append(Series(", ".join(words) or key, _points(history, key), colour, dashed=dashed))
    if not any(one.points for one in series):
        return Html("")
    return line_chart(caption, series, x_name="epoch", y_name=y_name, whole_x=True, from_zero=from_zero, note=note)


def _is_pair(keys: list[str]) -> bool:
    return len(keys) == 2 and keys[0] == f"ema_{keys[1]}"


def _points(history: History, key: str) -> list[tuple[float, float]]:
    found = [(float(epoch.get("epoch", i)), float(epoch[key])) for i, epoch in enumerate(history) if key in epoch]
    return [point for point in found if math.isfinite(point[1])]


def _rates(history: History) -> list[str]:
    return sorted({key for epoch in history for key in epoch if key == "lr" or key.startswith(("lr_", "lr/"))})[
        :_COLOURS
    ]


def _others(data: ReportData) -> Html:
    """The other validation figures of this run: one line each, the averaged weights where there are some."""
    keys = list(dict.fromkeys(key for epoch in data.history for key in epoch))
    left_out = {*_NOT_METRICS, data.main_metric, f"ema_{data.main_metric}", "loss", *_rates(data.history)}
    final = [key for key in keys if key not in left_out and key.removeprefix("ema_") in data.metrics]
    averaged = [key for key in final if key.startswith("ema_") or f"ema_{key}" not in final]
    telling = [key for key in averaged if "F1" in key or "top" in key]  # six lines of precision and recall hide them
    chosen = (telling or averaged)[:_COLOURS]
    series = [Series(key.removeprefix("ema_"), _points(data.history, key), i + 1) for i, key in enumerate(chosen)]
    if not any(one.points for one in series):
        return Html("")
    what = series[0].name if len(series) == 1 else "Other figures"
    return line_chart(f"{what} on the validation part", series, x_name="epoch", y_name="%", whole_x=True)


def _by_lists(data: ReportData) -> Html:
    """The mAP of seen labels, unseen ones and all, where some were never trained."""
    if not data.unseen:
        return Html("")
    averaged = any("ema_mAP" in epoch for epoch in data.history)
    names = {"seen_mAP": "seen", "unseen_mAP": "unseen (ZSL)", "mAP": "all (GZSL)"}
    series = [
        Series(name, _points(data.history, f"ema_{key}" if averaged else key), i + 1)
        for i, (key, name) in enumerate(names.items())
    ]
    drawn = [one for one in series if one.points]
    note = f"Of the {_WEIGHTS[averaged]}."
    return line_chart("mAP by kind of label", drawn, x_name="epoch", y_name="mAP, %", whole_x=True, note=note)


def _best(history: History, main: str) -> tuple[float, float, str] | None:
    """The best value, its epoch, and which weights gave it."""
    found = [(b, a, key) for key in (f"ema_{main}", main) for a, b in _points(history, key)]
    return max(found, key=lambda one: (one[0], -one[1])) if found else None


def _best_note(data: ReportData) -> str:
    best = _best(data.history, data.main_metric)
    if best is None:
        return ""
    which = ", averaged weights" if best[2].startswith("ema_") else ""
    return f"Best: {best[0]:.1f} after epoch {best[1]:g}{which}."


def _side_by_side(data: ReportData, runs: Mapping[str, History]) -> Html:
    own = _best(data.history, data.main_metric)
    rows = []
    for run, history in runs.items():
        best = _best(history, data.main_metric)
        seconds = sum(value for _, value in _points(history, "seconds"))
        losses = _points(history, "loss")
        gap = best[0] - own[0] if best and own and run != _OWN else math.nan
        rows.append(
            [
                tables.name(f"{_OWN} ({data.title})" if run == _OWN else run),
                tables.Cell(f"{best[0]:.1f}" if best else "–", f"{best[0]:.6g}" if best else "", numeric=True),
                tables.Cell(
                    f"{gap:+.1f}".replace("-", "−") if math.isfinite(gap) else "",
                    f"{gap:.6g}" if math.isfinite(gap) else "",
                    numeric=True,
                ),
                tables.number(best[1] if best else None),
                tables.number(losses[-1][1] if losses else None),
                tables.Cell(duration(seconds) if seconds else "–", f"{seconds:g}" if seconds else "", numeric=True),
            ]
        )
    heads = ["Run", f"Best {data.main_metric}", "Difference", "After epoch", "Last loss", "Time"]
    return tables.table(heads, rows, caption="This run and others, side by side")


def _epochs(history: History) -> Html:
    keys = list(dict.fromkeys(key for epoch in history for key in epoch))
    keys.sort(key=lambda key: key != "epoch")
    rows = [[tables.number(epoch.get(key)) for key in keys] for epoch in history]
    return tables.table(keys, rows, caption="All epochs in numbers")
