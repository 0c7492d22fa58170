"""The whole page, and the file it is written to."""

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.resources import files
from pathlib import Path

import mldecoder
from mldecoder.training.report import classes, curves, gallery, headline, zero_shot
from mldecoder.training.report.data import ReportData
from mldecoder.training.report.figures import class_figures
from mldecoder.training.report.markup import Html, tag

__all__ = ["make_page", "write_report"]

# The browser itself keeps the promise that nothing is fetched from anywhere.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def write_report(path: Path, data: ReportData) -> None:
    """Write the report of a run as one HTML file; an older one stays whole until the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A file name that is not UTF-8 comes as lone surrogates, which cannot be written.
    content = make_page(data).encode("utf-8", "replace")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def make_page(data: ReportData) -> str:
    """The page as text."""
    figures = class_figures(data)
    of_labels = "Average precision of each label" if data.task == "multi-label" else "Accuracy of each class"
    parts = {
        "zero-shot": ("Seen and unseen labels", zero_shot.section(data)),
        "training": ("Training", curves.section(data)),
        "labels": (of_labels, classes.labels_section(data, figures)),
        "confusion": ("Confusion", classes.confusion_section(data) if data.task == "single-label" else Html("")),
        "precision-recall": ("Precision and recall", classes.curves_section(data, figures)),
        "mistakes": ("Confident mistakes", gallery.section(data)),
        "settings": ("Settings", _settings(data.settings)),
    }
    parts = {name: part for name, part in parts.items() if part[1]}
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, (title, _) in parts.items()]
    sections = [tag("section", tag("h2", title), made, id=name) for name, (title, made) in parts.items()]
    written = datetime.now().astimezone()
    body = tag(
        "body",
        tag(
            "header",
            tag("h1", data.title),
            tag("p", headline.facts(data), class_="soft"),
            tag("nav", tag("ul", *links), aria_label="Contents"),
        ),
        tag("main", headline.cards(data), headline.notes(data), *sections),
        tag("footer", f"Written {written:%Y-%m-%d %H:%M %Z} by mldecoder {mldecoder.__version__}."),
        tag("script", Html(_asset("table.js"))),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{_head(data.title)}\n{body}\n</html>\n'


def _head(title: str) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Html(_asset("style.css"))),
    )


def _settings(settings: Mapping[str, object]) -> Html:
    rows = [tag("tr", tag("th", key, scope="row"), tag("td", value)) for key, value in _flat(settings)]
    if not rows:
        return tag("p", "No settings were given.", class_="soft")
    made = tag("table", tag("tbody", *rows), class_="settings", aria_label="Settings of the run")
    inner = tag("div", made, class_="scroll")
    return tag("details", tag("summary", f"{len(rows)} settings, as resolved for this run"), tag("div", inner))


def _flat(settings: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as ``section.key`` and value, as ``--set`` takes them."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", _shown(value)


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_shown(one) for one in value) + "]"
    return str(value)


def _asset(name: str) -> str:
    return files("mldecoder.training.report").joinpath(name).read_text("utf-8")
