import math
import re
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix as sklearn_confusion
from torch import Tensor

from mldecoder.data.dataset import Arrays, Files, ImageSet, Targets, Task
from mldecoder.errors import InputError
from mldecoder.metrics import average_precision
from mldecoder.training.report import ReportData, write_report
from mldecoder.training.report.axes import make_axis
from mldecoder.training.report.confusion import confused_pairs, confusion_matrix
from mldecoder.training.report.figures import class_figures
from mldecoder.training.report.mistakes import LIMIT, false_negatives, false_positives
from mldecoder.training.report.page import make_page
from mldecoder.training.report.precision_recall import curve

VOID = {"br", "col", "img", "input", "link", "meta", "line", "rect", "path", "circle", "wbr"}
NASTY = "<script>alert('1')</script> & \"x\""


class Page(HTMLParser):
    """Reads a page as a browser would, and notes elements, attributes and text; refuses unbalanced tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"script", "style"}:
            self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


def pictures(n: int, side: int = 12) -> Arrays:
    return Arrays(np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8), prefix="val/")


def report(
    scores: Tensor, targets: Tensor, *, task: Task = "multi-label", labels: Iterable[str] | None = None, side: int = 12
) -> ReportData:
    n, k = scores.shape
    names = tuple(labels) if labels is not None else tuple(f"label {j}" for j in range(k))
    history = [
        {"epoch": float(e), "loss": 5.0 / e, "lr": 1e-3, "seconds": 2.0, "mAP": 10.0 * e, "ema_mAP": 11.0 * e}
        for e in range(1, 5)
    ]
    if task == "single-label":
        history = [{**epoch, "top1": 20.0 * epoch["epoch"]} for epoch in history]
    held = Targets.from_lists([[]] * n, num_classes=k)
    return ReportData(
        title="scenes, ML-Decoder",
        task=task,
        labels=names,
        settings={"head": {"kind": "ml_decoder", "num_queries": None}, "training": {"epochs": 4, "flip": True}},
        history=history,
        metrics={"mAP": 71.25, "CF1": 60.0} if task == "multi-label" else {"top1": 80.0, "top5": 97.0},
        scores=scores,
        targets=targets.to(torch.int8),
        validation=ImageSet(pictures(n, side), held, names, task),
    )


def multi_label(n: int = 40, k: int = 6, **changes: object) -> ReportData:
    targets = (torch.rand(n, k) < 0.4).to(torch.int8)
    return replace(report(torch.rand(n, k), targets), **changes)  # type: ignore[arg-type]


def single_label(n: int = 40, k: int = 6) -> ReportData:
    classes = torch.arange(n) % k
    targets = torch.nn.functional.one_hot(classes, k)
    return report((torch.randn(n, k) + 2 * targets).softmax(dim=1), targets, task="single-label")


# The page


@pytest.mark.parametrize("data", [multi_label(), single_label()], ids=["multi-label", "single-label"])
def test_a_report_is_one_file_that_needs_nothing_else(data: ReportData, tmp_path: Path) -> None:
    path = tmp_path / "run" / "report.html"
    write_report(path, data)
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    text = path.read_text("utf-8")
    page = Page(text)
    for name in ("src", "href", "srcset", "action", "poster", "data"):
        assert all(value.startswith(("#", "data:")) for value in page.values(name))
    assert not re.search(r"https?:|url\(|@import|//cdn", text)
    assert any("default-src 'none'" in value for value in page.values("content"))
    identities = page.values("id")
    assert len(set(identities)) == len(identities)
    assert {value.removeprefix("#") for value in page.values("href") if value != "data:,"} <= set(identities)


def test_a_report_shows_figures_curves_labels_mistakes_settings_notes_and_version() -> None:
    data = replace(multi_label(), notes=["2 pictures were broken"], compare={"GAP": multi_label().history[:2]})
    page = Page(make_page(data))
    for told in (
        "scenes, ML-Decoder",
        "71.2",
        "Training loss",
        "mAP on the validation part",
        "averaged weights (EMA)",
        "Learning rate",
        "Best: 44.0 after epoch 4, averaged weights.",
        "GAP",
        "−22.0",
        "label 5",
        "Precision over recall",
        "Said, but not labelled",
        "Labelled, but missed",
        "head.num_queriesnull",
        "training.fliptrue",
        "2 pictures were broken",
        "by mldecoder 0.",
    ):
        assert told in page.text, told
    assert page.tags.count("h1") == 1
    assert page.values("alt")
    assert all(page.values("alt"))


def test_names_cannot_become_markup() -> None:
    labels = (NASTY, "</td></table>", "a&amp;b", '"><img src=x>')
    base = report(torch.rand(30, 4), (torch.rand(30, 4) < 0.5).to(torch.int8), labels=labels)
    validation = replace(base.validation, pictures=Arrays(pictures(30).images, prefix=NASTY))
    data = replace(
        base,
        title=NASTY,
        notes=[NASTY],
        compare={NASTY: base.history},
        settings={NASTY: {"key": NASTY}},
        metrics={NASTY: 1.0},
        validation=validation,
    )
    text = make_page(data)
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "x" not in page.values("src")
    assert NASTY in page.text
    assert "a&amp;b" in page.text
    assert text.count("<script") == 1
    assert Page(make_page(replace(data, task="single-label"))).tags.count("script") == 1


def test_file_names_that_are_not_utf8_can_be_written(tmp_path: Path) -> None:
    data = multi_label()
    names = [f"caf\udce9-{i}.jpg" for i in range(40)]
    data = replace(data, validation=replace(data.validation, pictures=Files(tmp_path, names)))
    write_report(tmp_path / "report.html", data)
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "caf?-" in text
    assert "cannot be read" in text  # there are no such files


def test_an_older_report_stays_whole_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("older")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(path, multi_label())
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("task", ["multi-label", "single-label"])
def test_labels_without_positives_are_named_and_take_no_part(task: Task) -> None:
    targets = torch.zeros(20, 5, dtype=torch.int8)
    targets[:, 0] = 1
    page = Page(make_page(report(torch.rand(20, 5), targets, task=task)))
    assert "4 labels have no positive picture here" in page.text
    assert "nan" not in page.text.lower()


@pytest.mark.parametrize("task", ["multi-label", "single-label"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_part_without_any_positive_still_has_a_report(task: Task, value: int) -> None:
    targets = torch.full((8, 3), value, dtype=torch.int8)
    data = report(torch.rand(8, 3), targets, task=task)
    page = Page(make_page(replace(data, metrics={"mAP": math.nan})))
    assert "there is no curve" in page.text
    assert "nan" not in page.text.lower()
    assert ("img" in page.tags) == (task == "multi-label" and value == 0)


@pytest.mark.parametrize("task", ["multi-label", "single-label"])
def test_no_pictures_no_history_no_settings_no_figures_still_make_a_page(task: Task) -> None:
    data = report(torch.zeros(0, 3), torch.zeros(0, 3), task=task)
    page = Page(make_page(replace(data, history=[], settings={}, metrics={})))
    assert "No epoch was recorded." in page.text


def test_gaps_and_single_epochs_in_the_history_are_drawn_around() -> None:
    history = [
        {"epoch": 0.0, "loss": math.nan},
        {"epoch": 1.0, "loss": 3.0, "mAP": 5.0},
        {"epoch": 2.0, "loss": math.inf},
    ]
    page = Page(make_page(multi_label(history=history)))
    assert "Best: 5.0 after epoch 1." in page.text
    assert all(not re.search("nan|inf", value) for value in page.values("d") + page.values("cy"))
    assert "Training loss" in Page(make_page(multi_label(history=history[1:2]))).text


# Many labels, large pictures


def test_few_labels_are_all_listed_best_first() -> None:
    data = multi_label(n=60, k=40)
    page = Page(make_page(data))
    ranking = average_precision(data.scores, data.targets)
    best = [data.labels[j] for j in ranking.argsort(descending=True).tolist()]
    table = page.text[page.text.index("LabelAverage precision") :]
    places = [re.search(rf"{label}(?=\d+\.\d)", table) for label in (best[0], best[20], best[-1])]
    assert [found.start() for found in places if found] == sorted(found.start() for found in places if found)
    assert "Find a label" not in page.values("placeholder")


def test_a_hundred_labels_and_large_pictures_stay_below_three_megabytes() -> None:
    data = report(torch.rand(60, 100), (torch.rand(60, 100) < 0.5).to(torch.int8), side=500)
    text = make_page(data)
    page = Page(text)
    assert 40 <= page.tags.count("img") <= 60
    assert len(text) < 3_000_000
    assert page.values("placeholder") == ["Find a label"]
    assert "Average precision of 100 labels" in page.text


def test_thousands_of_labels_show_the_best_and_the_worst_thirty() -> None:
    n, k = 50, 3000
    data = report(torch.rand(n, k), (torch.rand(n, k) < 0.02).to(torch.int8))
    text = make_page(data)
    page = Page(text)
    order = class_figures(data).order
    assert "Worst 30 labels" in page.text
    assert "Best 30 labels" in page.text
    bars = text[text.index("Worst 30 labels") : text.index('id="precision-recall"')]
    listed = re.findall(r'class="label">(label \d+)<', bars)
    expected = [*order[-30:][::-1], *order[:30]]
    assert listed == [data.labels[j] for j in expected]
    assert len(text) < 3_000_000


# What is found


@given(n=st.integers(1, 30), k=st.integers(1, 5), seed=st.integers(0, 1000), limit=st.integers(1, 12))
def test_mistakes_are_the_worst_known_entries_and_never_unknown_ones(n: int, k: int, seed: int, limit: int) -> None:
    random = torch.Generator().manual_seed(seed)
    scores = torch.rand(n, k, generator=random)
    targets = torch.randint(-1, 2, (n, k), generator=random)
    data = report(scores, targets)
    for found, of, sign in ((false_positives(data, limit=limit), 0, 1), (false_negatives(data, limit=limit), 1, -1)):
        wrong = [
            (i, j, scores[i, j].item())
            for i in range(n)
            for j in range(k)
            if targets[i, j] == of and (scores[i, j] >= 0.5) == (of == 0)
        ]
        slow: list[tuple[int, int, float]] = []
        for i, j, score in sorted(wrong, key=lambda entry: -sign * entry[2]):
            new = all(i != shown for shown, _, _ in slow)
            rare = sum(j == shown for _, shown, _ in slow) < max(3, limit // k)
            if new and rare and len(slow) < limit:
                slow.append((i, j, score))
        assert found == slow


def test_one_bad_label_does_not_hide_the_mistakes_of_others() -> None:
    scores = torch.full((100, 50), 0.6)
    scores[:, 7] = 0.99
    found = false_positives(report(scores, torch.zeros(100, 50)))
    assert [mistake.label for mistake in found].count(7) == 3
    assert len(found) == LIMIT


def test_a_single_label_mistake_needs_a_known_class_and_a_known_guess() -> None:
    scores = torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.1, 0.6, 0.3]])
    targets = torch.tensor([[-1, -1, -1], [-1, 1, 0], [0, 1, 0], [1, 0, 0]])
    data = report(scores, targets, task="single-label")
    assert [(m.picture, m.label) for m in false_positives(data)] == [(2, 0), (3, 1)]
    assert [(m.picture, m.label) for m in false_negatives(data)] == [(3, 0), (2, 1)]
    assert [(pair.truth, pair.guess, pair.pictures) for pair in confused_pairs(scores, targets)] == [
        (0, 1, 1),
        (1, 0, 1),
    ]


def test_a_picture_is_shown_once_in_a_single_label_report() -> None:
    data = single_label(n=20)
    text = make_page(replace(data, scores=torch.rand(20, 6)))
    shown = re.findall(r'alt="Thumbnail of (val/\d+)"', text)
    assert len(shown) == len(set(shown)) > 0


@given(n=st.integers(1, 60), k=st.integers(2, 6), seed=st.integers(0, 1000))
def test_confusion_is_counted_as_scikit_learn_does(n: int, k: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    truth = torch.randint(0, k, (n,), generator=random)
    scores, targets = torch.rand(n, k, generator=random), torch.nn.functional.one_hot(truth, k)
    expected = sklearn_confusion(truth, scores.argmax(dim=1), labels=range(k))
    assert confusion_matrix(scores, targets).tolist() == expected.tolist()
    pairs = confused_pairs(scores, targets)
    assert [pair.pictures for pair in pairs] == sorted((pair.pictures for pair in pairs), reverse=True)
    assert all(expected[pair.truth, pair.guess] == pair.pictures for pair in pairs)
    if len(pairs) < 20:
        assert sum(pair.pictures for pair in pairs) == n - expected.trace()
    figures = class_figures(report(scores, targets, task="single-label"))
    there = figures.positives > 0
    accuracy = torch.tensor(expected.diagonal() / np.maximum(expected.sum(axis=1), 1))
    torch.testing.assert_close(figures.main[there], accuracy[there])
    assert bool(figures.main[~there].isnan().all())


@given(n=st.integers(1, 50), levels=st.integers(1, 20), points=st.integers(1, 60), seed=st.integers(0, 1000))
def test_every_point_of_a_curve_is_what_counting_gives(n: int, levels: int, points: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, levels, (n, 2), generator=random) / levels
    targets = torch.randint(-1, 2, (n, 2), generator=random)
    found = curve(scores, targets, points=points)
    assert bool(found) == bool((targets > 0).any())
    assert len(found) <= points
    assert [point.recall for point in found] == sorted(point.recall for point in found)
    for point in found:
        said = (scores >= point.threshold) & (targets >= 0)
        hits = int((said & (targets > 0)).sum())
        assert point.precision == pytest.approx(hits / int(said.sum()))
        assert point.recall == pytest.approx(hits / int((targets > 0).sum()))
    if found and points > 1:
        assert found[-1].recall == 1.0


@given(
    values=st.lists(st.floats(-1e6, 1e6), max_size=8),
    whole=st.booleans(),
    from_zero=st.booleans(),
)
def test_an_axis_holds_its_values_and_its_ticks(values: list[float], whole: bool, from_zero: bool) -> None:
    axis = make_axis(values, start=10, end=200, whole=whole, from_zero=from_zero)
    for value in [*values, *axis.ticks]:
        assert 10 - 1e-3 <= axis(value) <= 200 + 1e-3
    assert len(axis.ticks) <= 12
    assert len({axis.text(tick) for tick in axis.ticks}) >= len(axis.ticks) - 1
    if whole:
        assert all(tick == int(tick) for tick in axis.ticks)


# What is refused


def test_scores_that_do_not_belong_to_the_pictures_are_refused() -> None:
    data = multi_label(n=10, k=3)
    with pytest.raises(InputError, match="validation must hold the 9 pictures of the scores, got 10"):
        replace(data, scores=data.scores[:9], targets=data.targets[:9])
    with pytest.raises(InputError, match="labels must name the 3 classes of the scores, got 2 names"):
        replace(data, labels=("a", "b"))
    with pytest.raises(InputError, match="targets must have the shape of the scores"):
        replace(data, targets=data.targets[:, :2])
    with pytest.raises(InputError, match="got NaN"):
        replace(data, scores=data.scores * math.nan)
