import json
from pathlib import Path

import pytest

from mldecoder.errors import DataError
from mldecoder.reproduce import TABLES
from mldecoder.reproduce.docs import page, write_page
from mldecoder.reproduce.plan import Wish, plan, portable
from mldecoder.reproduce.report import Origin, command_of, paper_number, write_report
from mldecoder.reproduce.summary import Summary, summarise
from tests.reproduce.records import made_up_record

HOME = Path(__file__).parents[2]


def made_up(wish: Wish) -> Summary:
    """A table of heads with figures that are nobody's."""
    table = TABLES["heads-coco"]
    jobs = plan(table, wish, 80)
    records = {}
    for job in jobs:
        value = {"GAP": 50.0, "transformer-decoder": 52.0}.get(job.row, 52.1) + 0.01 * job.seed
        records[job.key] = made_up_record(job, mAP=value, GMAC=4.0)
    return summarise(table, jobs, records)


def test_the_page_holds_every_figure_of_the_paper_and_every_table_that_was_made(tmp_path: Path) -> None:
    wish = Wish("/somewhere/coco", "small", tmp_path, init_from=Path("/elsewhere/resnet50.safetensors"))
    origin = Origin(command_of("heads-coco", wish), "abc", "a device")
    write_report(made_up(wish), wish, origin, tmp_path, "reproduce-heads-coco")
    text = page(tmp_path)
    for table in TABLES.values():
        section = text.split(f"## {table.name}: ")[1].split("\n## ")[0]
        for row in table.rows:
            for value in row.paper.values():
                assert paper_number(value) in section, (table.name, row.name, value)
        if table.name != "heads-coco":
            assert f"`mldecoder reproduce {table.name} --budget full" in section
    own = text.split("## heads-coco: ")[1].split("\n## ")[0]
    assert "| 52.11 ± 0.01 |" in own
    assert "ML-Decoder improves on GAP, by more than a point: **holds, the whole interval is above 0" in own
    assert "Transformer-decoder and ML-Decoder reach the same accuracy: **holds within the interval" in own
    made = "`mldecoder reproduce heads-coco --budget small --data coco --init-from resnet50.safetensors --seeds 3`"
    assert f"Made by {made} at commit abc on a device." in own
    assert "the same question on `coco`, a small part" in own
    assert "## What agrees and what does not" in text
    assert "/somewhere" not in text
    assert "/elsewhere" not in text


def test_the_page_shows_tables_of_other_tools_with_their_commands(tmp_path: Path) -> None:
    content = {"command": "make it", "commit": "abc", "hardware": "here", "rows": [{"head": "GAP", "mAP": "1.0"}]}
    (tmp_path / "coco-heads.json").write_text(json.dumps(content))
    (tmp_path / "coco-heads.md").write_text("# Heads on COCO\n")
    section = page(tmp_path).split("## heads-coco: ")[1].split("\n## ")[0]
    assert "Also [Heads on COCO](../benchmarks/coco-heads.md):" in section
    assert "| GAP | 1.0 |" in section
    assert "Made by `make it` at commit abc on here." in section


def test_the_page_shows_a_table_of_another_backbone_below_its_own(tmp_path: Path) -> None:
    for backbone, stem in ((None, "reproduce-heads-coco"), ("lite0", "reproduce-heads-coco-lite0")):
        wish = Wish("coco", "small", tmp_path, backbone=backbone)
        origin = Origin(command_of("heads-coco", wish), "abc", "a device")
        write_report(made_up(wish), wish, origin, tmp_path, stem)
    section = page(tmp_path).split("## heads-coco: ")[1].split("\n## ")[0]
    assert "### With lite0" in section
    assert section.index("reproduce-heads-coco.md") < section.index("reproduce-heads-coco-lite0.md")


def test_of_our_own_tables_only_what_was_run_is_told(tmp_path: Path) -> None:
    table, wish = TABLES["head-options"], Wish("coco", "small", tmp_path, seeds=2)
    jobs = plan(table, wish, 80)
    told = ("the paper's head", "branch mean")
    records = {job.key: made_up_record(job, mAP=50.0) for job in jobs if job.row in told}
    write_report(summarise(table, jobs, records), wish, Origin("it", "abc", "here"), tmp_path, "reproduce-head-options")
    text = (tmp_path / "reproduce-head-options.md").read_text()
    assert "| branch mean |" in text
    assert "| token norm |" not in text
    assert "branch mean beats" in text
    assert "not run**" not in text
    assert "token norm beats" not in page(tmp_path)


def test_the_page_in_the_repository_is_the_one_that_the_command_writes() -> None:
    if not (HOME / "docs" / "results.md").is_file():
        pytest.skip("a checkout without the page")
    assert (HOME / "docs" / "results.md").read_text(encoding="utf-8") == page(HOME / "benchmarks")


def test_a_page_needs_its_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be the folder of tables"):
        write_page(tmp_path / "nowhere", tmp_path / "results.md")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text.encoder=words:/home/me/v.npz", "text.encoder=words:v.npz"),
        ("data.unseen=/a/b/splits.json#48_17", "data.unseen=splits.json#48_17"),
        ("data.options.images=~/pictures/all", "data.options.images=all"),
        ("optimiser.lr=1.0e-4", "optimiser.lr=1.0e-4"),
        ("head.num_queries=80", "head.num_queries=80"),
        ("backbone.name=transformers/facebook/dinov2-small", "backbone.name=transformers/facebook/dinov2-small"),
    ],
)
def test_folders_of_a_machine_stay_out_of_what_is_written(text: str, expected: str) -> None:
    assert portable(text) == expected
