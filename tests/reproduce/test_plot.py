"""Plots of tables: a line a row, or curves for the paper's figures."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from mldecoder.reproduce.plan import Wish, plan
from mldecoder.reproduce.plot import plot
from mldecoder.reproduce.registry import find_table
from mldecoder.reproduce.summary import Summary, summarise
from tests.reproduce.records import made_up_record


def made_up(name: str, tmp_path: Path, rows: tuple[str, ...] = ()) -> Summary:
    """A table with two seeds of figures that are nobody's: larger backbones and later heads are better."""
    table = find_table(name)
    jobs = plan(table, Wish("coco", "small", tmp_path, seeds=2, rows=rows), 80)
    records = {}
    for job in jobs:
        place = [row.name for row in table.rows].index(job.row)
        records[job.key] = made_up_record(job, mAP=50.0 + place + 0.1 * job.seed, GMAC=1.0 + place // 2)
    return summarise(table, jobs, records)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were saved."""
    figures: list[Any] = []
    save = Figure.savefig

    def noted(self: Figure, path: Path, *, dpi: int) -> None:
        figures.append(self)
        save(self, path, dpi=dpi)

    monkeypatch.setattr(Figure, "savefig", noted)
    return figures


def test_a_table_has_a_line_for_each_row_that_was_run(tmp_path: Path, drawn: list[Any]) -> None:
    plot(made_up("heads-coco", tmp_path, ("GAP", "ML-Decoder K=N")), tmp_path / "a.png", "here")
    values, differences = drawn[0].axes
    assert [label.get_text() for label in values.get_yticklabels()] == ["GAP", "ML-Decoder K=N"]
    assert differences.get_xlabel() == "mAP, less GAP"
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width == 1300


def test_a_row_alone_is_compared_with_nothing(tmp_path: Path, drawn: list[Any]) -> None:
    plot(made_up("heads-coco", tmp_path, ("GAP",)), tmp_path / "a.png", "here")
    assert len(drawn[0].axes) == 1


def test_a_figure_of_the_paper_is_a_curve_for_each_head(tmp_path: Path, drawn: list[Any]) -> None:
    plot(made_up("flops", tmp_path), tmp_path / "a.png", "here")
    (axis,) = drawn[0].axes
    curves = {line.get_label(): line for line in axis.lines if not line.get_label().startswith("_")}
    assert list(curves) == ["GAP", "ML-Decoder"]
    assert list(curves["GAP"].get_xdata()) == [1.0, 2.0, 3.0]
    assert list(curves["ML-Decoder"].get_ydata()) == pytest.approx([51.05, 53.05, 55.05])
    assert [text.get_text() for text in axis.texts] == ["S", "M", "L"] * 2
    assert axis.get_xlabel() == "GMAC"
