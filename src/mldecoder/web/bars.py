"""Tags as bars: score, threshold, a box to tick, and the map of what is ticked. Labels are text, never markup."""

from collections.abc import Iterable, Mapping

import numpy as np

from mldecoder.training.report.markup import Html, join, name, tag
from mldecoder.web.answer import Answer, Map

__all__ = ["bars", "chosen", "message", "nothing"]

_HINT = "Tick one to see where the model looked."
_SHOWN, _MOST = 12, 60  # labels shown in any case, and at most however many reach their thresholds


def bars(answer: Answer, maps: Mapping[str, Map] | None = None) -> Html:
    """The labels that reach their thresholds and the next best, best first, with the maps of the ticked ones."""
    prediction, maps = answer.prediction, maps or {}
    marked = bool(np.any(prediction.thresholds > 0))  # a single-label model has none
    there = {one.label for one in prediction.tags}
    rows = [
        _row(i, prediction.labels[i], float(prediction.scores[i]), threshold, prediction.labels[i] in there, maps)
        for i, threshold in ((i, float(prediction.thresholds[i]) if marked else None) for i in chosen(answer, maps))
    ]
    return join(
        [
            _headline(len(there), len(prediction.labels), marked=marked),
            *(tag("p", f"Read as {note}.", class_="note") for note in answer.notes),
            tag("ul", *rows, class_="tags"),
        ]
    )


def chosen(answer: Answer, ticked: Iterable[str] = ()) -> list[int]:
    """Numbers of the labels to show: the best ones, and further ones that are tags or ticked."""
    prediction = answer.prediction
    keep = {one.label for one in prediction.tags[:_MOST]} | set(ticked)
    best = [int(i) for i in np.argsort(-prediction.scores, kind="stable")]
    return [i for place, i in enumerate(best) if place < _SHOWN or prediction.labels[i] in keep]


def message(text: str) -> Html:
    """One line that says why there is no answer."""
    return tag("p", text, class_="message", role="alert")


def nothing() -> Html:
    """What stands there before a picture came."""
    return tag("p", "Drop a photo, or click an example. Tags appear here.", class_="empty")


def _headline(tags: int, labels: int, *, marked: bool) -> Html:
    if not marked:
        return tag("p", f"The best of {labels:,} labels. {_HINT}", class_="summary")
    reach = "reaches its threshold" if tags == 1 else "reach their thresholds"
    line = tag("span", class_="mark", aria_hidden="true")
    count = f"{tags or 'None'} of {labels:,} labels {reach}, the line "
    return tag("p", count, line, f" on each bar. {_HINT}", class_="summary")


def _row(number: int, label: str, score: float, threshold: float | None, there: bool, maps: Mapping[str, Map]) -> Html:
    shown = maps.get(label)
    parts = [
        tag(
            "label",
            tag("input", type="checkbox", data_label=label, checked="" if shown else None),
            name(label),
            tag("span", f"{score:.2f}", class_="score"),
        ),
        _bar(score, threshold),
    ]
    if shown is not None:
        picture = tag("img", src=shown.address, alt=f"Map of {label}")
        parts.append(tag("figure", picture, tag("figcaption", shown.caption)))
    classes = "there" if there else "below"
    return tag("li", *parts, class_=classes, data_number=str(number))


def _bar(score: float, threshold: float | None) -> Html:
    said = f"score {score:.2f}" + ("" if threshold is None else f", threshold {threshold:.2f}")
    inside = [tag("span", class_="fill", style=f"width:{100 * score:.2f}%")]
    if threshold is not None:
        inside.append(tag("span", class_="mark", style=f"left:{100 * threshold:.2f}%"))
    return tag("div", *inside, class_="bar", role="img", aria_label=said, title=said)
