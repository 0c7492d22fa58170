"""The top of the page: what was trained, the final figures, and what to be warned of."""

import math
import re

from mldecoder.training.report.data import ReportData
from mldecoder.training.report.markup import Html, tag

__all__ = ["cards", "duration", "facts", "notes"]

_MEANING = {
    "mAP": "mean average precision over labels",
    "CP": "precision, mean over labels",
    "CR": "recall, mean over labels",
    "CF1": "F1 of CP and CR",
    "OP": "precision over all tags",
    "OR": "recall over all tags",
    "OF1": "F1 of OP and OR",
    "top1": "first guess is right",
    "class_top1": "first guess is right, mean over classes",
    "loss": "on the validation part",
}


def cards(data: ReportData) -> Html:
    """The final figures, the one that counts first."""
    names = sorted(data.metrics, key=lambda name: name != data.main_metric)
    if data.unseen:  # figures at K stand in a table of their own
        names = [name for name in names if "@" not in name]
    made = []
    for name in names:
        value = data.metrics[name]
        shown = f"{value:.1f}" if math.isfinite(value) else "–"
        parts = [tag("dt", name), tag("dd", shown, class_="value")]
        if meaning := _meaning(name):
            parts.append(tag("dd", meaning, class_="hint"))
        made.append(tag("div", *parts, class_="main" if name == data.main_metric else "other"))
    return tag("dl", *made, class_="cards") if made else tag("p", "No final figures were given.", class_="soft")


def facts(data: ReportData) -> str:
    """One line: how much data, how many epochs, how long, how fast."""
    n, k = data.scores.shape
    told = [data.task, f"{n:,} validation pictures", f"{k:,} labels", f"{len(data.history):,} epochs"]
    seconds = sum(_finite(epoch.get("seconds")) for epoch in data.history)
    if seconds:
        told.append(f"{duration(seconds)} of training")
    speeds = [speed for epoch in data.history if (speed := _finite(epoch.get("images_per_second")))]
    if speeds:
        told.append(f"{sorted(speeds)[len(speeds) // 2]:,.0f} images a second")
    return " · ".join(told)


def notes(data: ReportData) -> Html:
    """Warnings, where there are any."""
    if not data.notes:
        return Html("")
    items = [tag("li", note) for note in data.notes]
    return tag("section", tag("h2", "Worth knowing"), tag("ul", *items), class_="notes")


def duration(seconds: float) -> str:
    """A time for a person, as in "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def _meaning(name: str) -> str:
    if name.startswith("ema_"):
        inner = _meaning(name.removeprefix("ema_"))
        return f"{inner}, averaged weights" if inner else "averaged weights"
    for prefix, whose in (("unseen_", "labels never trained"), ("seen_", "labels that were trained")):
        if name.startswith(prefix):
            return f"{_meaning(name.removeprefix(prefix))}, {whose}"
    if found := re.fullmatch(r"top(\d+)", name):
        return _MEANING.get(name, f"right among the first {found[1]} guesses")
    if found := re.fullmatch(r"(P|R|F1)@(\d+)", name):
        what = {"P": "precision", "R": "recall", "F1": "F1"}[found[1]]
        return f"{what} of the {found[2]} best labels"
    return _MEANING.get(name, "")


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0
