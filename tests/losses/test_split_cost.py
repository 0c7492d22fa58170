"""The memory formula of a split layer against what processes hold."""

import functools
import json
from pathlib import Path

import pytest
from tools.split_memory import Measured, Setting, measure_process, paper_row, row_of, table
from torch.distributed import ProcessGroup

from mldecoder.errors import ConfigError
from mldecoder.heads.ranks import Ranks
from mldecoder.losses import grouped
from mldecoder.losses.split_cost import bytes_moved, split_bytes
from tests.ranks import run

SMALL = Setting(classes=20_000, queries=40, width=96, batch=8, count=10)
ODD = Setting(classes=10_007, queries=41, width=64, batch=7, count=10)


def on_each(_rank: int, group: ProcessGroup, setting: Setting) -> Measured:
    return measure_process(setting, Ranks(group))


@functools.cache
def held(setting: Setting, processes: int) -> list[Measured]:
    return run(processes, on_each, setting)


@pytest.mark.parametrize(("setting", "processes"), [(SMALL, 1), (SMALL, 2), (ODD, 4)])
def test_the_formula_is_what_processes_hold(setting: Setting, processes: int) -> None:
    measured, paper = held(setting, processes)[0], setting.formula(processes)  # the first has the largest share
    assert measured.weights == paper.weights
    assert measured.numbering == paper.numbering
    assert measured.gradients == paper.gradients
    assert measured.state == pytest.approx(paper.state, abs=100)  # and a few counters
    assert measured.own == paper.own
    assert measured.peak == pytest.approx(paper.peak, rel=0.1)


def test_two_processes_hold_half_each() -> None:
    alone = held(SMALL, 1)[0]
    for one in held(SMALL, 2):
        assert one.peak == pytest.approx(alone.peak / 2, rel=0.1)
        assert one.top_k < alone.top_k


def test_every_term_is_as_the_docstring_says() -> None:
    found = split_bytes(10_007, 41, 64, 4, "adafactor", 7, precision=2)
    q, g = 11, 245  # ceil(41 / 4), ceil(10,007 / 41); the first 3 queries have 245 classes, the others 244
    m = 3 * 245 + 8 * 244
    assert found.weights == found.gradients == 4 * (q * 64 * g + m)
    assert found.numbering == 8 * (2 * m + q * g)
    assert found.state == 4 * (q * 64 + q * g + m)
    assert (found.own, found.received) == (2 * 2 * 41 * 64, 2 * 7 * q * 64)
    assert split_bytes(10**7, 10**3, 768, 8, "sgd", 4096).block == grouped.WORK_BYTES
    with pytest.raises(ConfigError, match="optimiser must be one of"):
        split_bytes(10, 2, 4, 1, "lion", 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ranks must be at least 1"):
        split_bytes(10, 2, 4, 0, "sgd", 1)


def test_queries_travel_cheaper_than_tokens_below_so_many_queries() -> None:
    for queries in (8 * 49 - 1, 8 * 49 + 1):
        moved = bytes_moved(queries, 768, 8, 64, 49)
        assert (moved["queries"] < moved["tokens"]) == (queries < 8 * 49)


def test_ten_million_classes_fit_eight_processes_of_24_gigabytes() -> None:
    assert split_bytes(10_000_000, 1000, 768, 8, "adamw", 1024, precision=2, fused=True).peak < 24 * 10**9
    assert split_bytes(10_000_000, 1000, 768, 1, "adamw", 1024, precision=2, fused=True).peak > 80 * 10**9


def test_the_table_has_a_row_a_number_of_processes(tmp_path: Path) -> None:
    alone = held(SMALL, 1)
    rows = [row_of(SMALL, 1, alone, alone[0]), row_of(SMALL, 2, held(SMALL, 2), alone[0])]
    computed = paper_row(8, classes=10_000_000, queries=1000, width=768, batch=1024)
    table([*rows, computed], SMALL, [1, 2], "abc", "a desk").write(tmp_path)
    written = json.loads((tmp_path / "split-head.json").read_text())["rows"]
    assert [row["processes"] for row in written] == [1, 2, 8]
    assert "10000000" in (tmp_path / "split-head.md").read_text()
