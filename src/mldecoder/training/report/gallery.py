"""Confident mistakes as pictures with what was said and what is true."""

from mldecoder.training.report import markup
from mldecoder.training.report.data import ReportData
from mldecoder.training.report.markup import Html, join, tag
from mldecoder.training.report.mistakes import LIMIT, Mistake, false_negatives, false_positives, thumbnail

__all__ = ["section"]

_GUESSES = 4
_TRUE = 12


def section(data: ReportData) -> Html:
    """Both kinds of mistakes."""
    wrong = false_positives(data)
    if data.task == "single-label":  # a picture with both kinds of mistake is shown once
        shown = {mistake.picture for mistake in wrong}
        twice = false_negatives(data, limit=2 * LIMIT)
        missed = [mistake for mistake in twice if mistake.picture not in shown][:LIMIT]
    else:
        missed = false_negatives(data)
    intro = "Where the model is surest and the labels disagree. Look here for wrong labels as well as for weak spots."
    if (data.targets < 0).any():
        intro += " Labels that are unknown for a picture never count as mistakes."
    if data.task == "single-label":
        titles = "Taken for another class", "Right class least expected"
    else:
        titles = "Said, but not labelled", "Labelled, but missed"
    return join(
        [
            tag("p", intro, class_="soft"),
            *_part(data, titles[0], wrong, "Highest scores first."),
            *_part(data, titles[1], missed, "Lowest scores first."),
        ]
    )


def _part(data: ReportData, title: str, mistakes: list[Mistake], order: str) -> list[Html]:
    if not mistakes:
        return [tag("h3", title), tag("p", "None.", class_="soft")]
    hint = order if data.task == "single-label" else f"{order} A picture is shown once, a label a few times at most."
    cards = [_card(data, mistake) for mistake in mistakes]
    return [tag("h3", title), tag("p", hint, class_="hint"), tag("ul", *cards, class_="mistakes")]


def _card(data: ReportData, mistake: Mistake) -> Html:
    name = data.validation.pictures.name(mistake.picture)
    source = thumbnail(data.validation.pictures, mistake.picture)
    if source is None:
        picture = tag("span", "cannot be read", class_="soft")
    else:
        picture = tag("img", src=source, alt=f"Thumbnail of {name}")
    what = [markup.name(data.labels[mistake.label]), " ", _score(mistake.score)]
    targets, scores = data.targets[mistake.picture], data.scores[mistake.picture]
    true = [data.labels[j] for j in (targets > 0).nonzero().flatten().tolist()]
    told = ", ".join(true[:_TRUE]) + (f" and {len(true) - _TRUE} more" if len(true) > _TRUE else "") or "none"
    best = scores.topk(min(_GUESSES, len(data.labels)))
    guesses = [
        _guess(data.labels[j], score, int(targets[j]))
        for score, j in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
    text = tag(
        "div",
        tag("p", *what, class_="what"),
        tag("p", markup.name(name), class_="file"),
        tag("p", tag("span", "Labels: ", class_="soft"), told),
        tag("p", "Best guesses:", class_="soft"),
        tag("ul", *guesses, class_="guesses"),
        class_="text",
    )
    return tag("li", tag("div", picture, class_="picture"), text)


def _guess(label: str, score: float, target: int) -> Html:
    style, sign, told = {1: ("yes", "✓", "right"), 0: ("no", "✗", "wrong")}.get(target, ("open", "?", "unknown"))
    mark = tag("span", sign, class_=style, title=told, role="img", aria_label=told)
    return tag("li", tag("span", mark, markup.name(label)), tag("span", _score(score)))


def _score(score: float) -> str:
    """A probability as percent, without claiming certainty."""
    value = 100 * score
    if value < 0.1:
        return "<0.1%"
    if 99.9 < value < 100:
        return ">99.9%"
    return f"{value:.0f}%" if 1 <= value <= 99 else f"{value:.1f}%"
