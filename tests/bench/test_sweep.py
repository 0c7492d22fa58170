import json
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from mldecoder.bench import BenchSettings, Row, bench_heads
from mldecoder.bench.cells import Cell, Workshop
from mldecoder.bench.contenders import contenders
from mldecoder.bench.place import find_place
from mldecoder.bench.report import Report

TINY = BenchSettings(
    device="cpu",
    classes=(6, 40),
    queries=(4,),
    tokens=(2, 2),
    features=16,
    width=32,
    ff_width=48,
    batch=2,
    repeats=3,
    repeat_seconds=1e-3,
)
PEERS = "tests.bench.peers"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], Path]:
    out = tmp_path_factory.mktemp("bench") / "new" / "folder"
    peers = ("mldecoder.bench.plain:PlainMLDecoder", f"{PEERS}:Sum")
    rows = bench_heads(replace(TINY, peers=peers, out=out), command="mldecoder bench heads ...")
    return rows, out


def test_every_head_is_measured_at_every_size_in_every_mode(measured: tuple[list[Row], Path]) -> None:
    rows, _ = measured
    heads = ["gap", "transformer-decoder", "ml-decoder", "mldecoder.bench.plain:PlainMLDecoder", f"{PEERS}:Sum"]
    assert [(row.mode, row.classes, row.head) for row in rows] == [
        (mode, n, head) for mode in ("train", "infer") for n in (6, 40) for head in heads
    ]
    for row in rows:
        assert (row.status, row.batch, row.repeats) == ("ok", 2, 3), row
        assert row.us_q1 is not None
        assert row.us_per_image is not None
        assert row.us_q3 is not None
        assert 0 < row.us_q1 <= row.us_per_image <= row.us_q3
        assert row.images_per_second == pytest.approx(1e6 / row.us_per_image)
        assert row.weights_bytes is not None
        assert row.weights_bytes > 0
        assert row.multiply_adds is not None
        assert row.ratio_to_gap is not None
        assert (row.peak_bytes, row.largest_batch) == (None, None)  # a CPU
    assert {row.queries for row in rows if row.head == "ml-decoder"} == {4}
    assert {row.ratio_to_gap for row in rows if row.head == "gap"} == {1.0}


def test_the_json_holds_everything(measured: tuple[list[Row], Path]) -> None:
    rows, out = measured
    found = json.loads((out / "heads.json").read_text(encoding="utf-8"))
    assert found["command"] == "mldecoder bench heads ..."
    assert found["finished"] is True
    assert found["hardware"]["device"] == "cpu"
    assert {"python", "mldecoder", "torch"} <= set(found["versions"])
    assert found["settings"]["classes"] == [6, 40]
    assert "commit" in found
    assert any("memory and the largest batch are measured on GPUs only" in note for note in found["notes"])
    assert [Row(**row) for row in found["rows"]] == rows
    assert set(found["rows"][0]) == {field.name for field in fields(Row)}


def test_the_table_and_the_plot_are_written(measured: tuple[list[Row], Path]) -> None:
    rows, out = measured
    text = (out / "heads.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\| (gap|transformer-decoder|ml-decoder|PlainMLDecoder|Sum) \|", text, re.M)) == len(rows)
    assert "## Training" in text
    assert "arXiv 2111.12933" in text
    png = (out / "heads.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert sorted(path.name for path in out.iterdir()) == ["heads.json", "heads.md", "heads.png"]


def test_what_cannot_fit_is_oom_and_is_not_tried() -> None:
    settings = replace(
        TINY, classes=(100_000,), heads=("gap", "transformer-decoder"), width=768, repeats=1, batch=1, modes=("infer",)
    )
    gap, decoder = bench_heads(settings)
    assert gap.status == "ok"
    assert (decoder.status, decoder.us_per_image) == ("OOM", None)
    assert re.fullmatch(r"needs at least \d+\.\d GiB by estimate, there are .*; not tried", decoder.detail)
    assert decoder.multiply_adds is not None


def test_a_memory_cap_counts_on_a_cpu_as_well_and_a_table_without_figures_has_no_plot(tmp_path: Path) -> None:
    settings = replace(TINY, heads=("ml-decoder",), classes=(40,), modes=("train",), memory_cap=1000, out=tmp_path)
    (row,) = bench_heads(settings)
    assert (row.status, row.repeats) == ("OOM", 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heads.json", "heads.md"]


def test_a_head_that_fails_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    peers = tuple(f"{PEERS}:{name}" for name in ("Broken", "Hungry", "OneNumber"))
    settings = replace(TINY, heads=("gap",), classes=(6,), peers=peers, out=tmp_path, repeats=1)
    rows = {(row.head.rpartition(":")[2], row.mode): row for row in bench_heads(settings)}
    assert {key: row.status for key, row in rows.items()} == {
        ("gap", "train"): "ok",
        ("Broken", "train"): "error: the first line",
        ("Hungry", "train"): "OOM",
        ("OneNumber", "train"): "error: A head must return logits of shape (2, classes), got ().",
        ("gap", "infer"): "ok",
        ("Broken", "infer"): "ok",
        ("Hungry", "infer"): "OOM",
        ("OneNumber", "infer"): "error: A head must return logits of shape (2, classes), got ().",
    }
    assert rows["Broken", "train"].detail == "RuntimeError: the first line"
    assert len(json.loads((tmp_path / "heads.json").read_text(encoding="utf-8"))["rows"]) == 8


def test_the_json_is_rewritten_after_every_cell_and_kept_after_an_interrupt(tmp_path: Path) -> None:
    written: list[int] = []

    def watch(report: Report, text: str) -> None:
        if report.rows:
            found = json.loads((tmp_path / "heads.json").read_text(encoding="utf-8"))
            written.append(len(found["rows"]))
            assert (len(found["rows"]), found["finished"]) == (len(report.rows), False)
        if "train: 2 heads in turns, 1 of 3" in text and "40 classes" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench_heads(replace(TINY, heads=("gap", "ml-decoder"), modes=("train",), out=tmp_path), watch=watch)
    assert {1, 2, 3} <= set(written)
    found = json.loads((tmp_path / "heads.json").read_text(encoding="utf-8"))
    assert found["finished"] is False
    assert [(row["classes"], row["repeats"]) for row in found["rows"]] == [(6, 3), (6, 3), (40, 1), (40, 1)]
    assert "stopped before the end" in (tmp_path / "heads.md").read_text(encoding="utf-8")


def test_what_finds_no_room_beside_the_others_is_measured_alone() -> None:
    settings = replace(TINY, heads=("ml-decoder", "transformer-decoder"), classes=(40,), modes=("train",), repeats=1)
    shop = Workshop(settings, find_place(settings))
    needs = [shop.needed(Cell(contender, "train", False), 2) for contender in contenders(settings, 40, 16)]
    rows = bench_heads(replace(settings, memory_cap=sum(needs) - 1))
    assert [row.status for row in rows] == ["ok", "ok"]
    assert [row.detail for row in rows] == ["", "not in turn with the others: no room beside them"]


def test_a_slow_cell_says_how_many_repeats_it_had_time_for() -> None:
    (row,) = bench_heads(replace(TINY, heads=("gap",), classes=(6,), modes=("infer",), budget=1e-9))
    assert (row.repeats, row.detail) == (1, "1 of 3 repeats in 0 s")


@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_measured_with_and_without_autocast(autocast: bool) -> None:
    settings = replace(TINY, heads=("ml-decoder",), classes=(40,), precision="bf16", autocast=autocast, repeats=1)
    rows = bench_heads(settings)
    assert [row.status for row in rows] == ["ok", "ok"]
    whole = bench_heads(replace(settings, precision="fp32", modes=("infer",)))[0].weights_bytes
    assert whole is not None
    assert rows[0].weights_bytes is not None
    assert (rows[0].weights_bytes < 0.6 * whole) is not autocast


def test_a_whole_network_is_measured_with_its_backbone() -> None:
    settings = replace(TINY, heads=("gap", "ml-decoder"), classes=(6,), backbone="test_resnet", size=32, repeats=1)
    rows = bench_heads(settings)
    assert [row.status for row in rows] == ["ok"] * 4
    gap, decoder = rows[:2]
    assert gap.multiply_adds is not None
    assert decoder.multiply_adds is not None
    assert decoder.multiply_adds > gap.multiply_adds > 10**6  # the backbone's are in both


@pytest.mark.slow
def test_compiled_heads_stand_beside_the_others() -> None:
    rows = bench_heads(replace(TINY, heads=("gap", "ml-decoder"), classes=(6,), compile="both", repeats=2))
    assert [row.compiled for row in rows] == [False, True] * 4
    assert [row.status for row in rows] == ["ok"] * 8


def test_heads_alone_are_measured_without_timm_pydantic_or_matplotlib(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('timm', 'pydantic', 'matplotlib', 'torchvision', 'yaml', 'huggingface_hub'):\n"
        "    sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from mldecoder.bench import BenchSettings, bench_heads\n"
        "small = dict(device='cpu', classes=(6,), features=8, width=16, ff_width=16, batch=2, repeats=1)\n"
        "head = BenchSettings(**small, heads=('ml-decoder',), out=Path(sys.argv[1]))\n"
        "print([row.status for row in bench_heads(head)])\n"
        "try:\n"
        "    bench_heads(BenchSettings(**small, backbone='resnet50'))\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines() == [
        "['ok', 'ok']",
        "BackboneError --backbone needs timm and torchvision, but timm is not installed. "
        "Install it, or leave --backbone out to measure the heads alone.",
    ], done.stderr
    notes = json.loads((tmp_path / "heads.json").read_text(encoding="utf-8"))["notes"]
    assert "No plot: matplotlib is not installed." in notes
