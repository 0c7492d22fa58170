"""``mldecoder reproduce`` as a user calls it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mldecoder.cli import app
from tests.cli import run


def test_the_list_needs_no_torch_and_names_every_table() -> None:
    found = CliRunner().invoke(app, ["reproduce", "--list"])
    assert found.exit_code == 0
    for words in ("heads-coco: Classification heads on MS-COCO", "86.7", "takes, full: 12 runs", "pets: Ours"):
        assert words in found.output


def test_a_table_can_be_listed_alone() -> None:
    found = CliRunner().invoke(app, ["reproduce", "voc", "--list"])
    assert found.exit_code == 0
    assert "RNN: mAP 91.9 (cited from others, not run)" in found.output
    assert "heads-coco" not in found.output


def test_a_check_counts_and_says_what_is_missing_and_where_it_is(tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / "train" / label).mkdir(parents=True)
        (tmp_path / "train" / label / "1.jpg").write_bytes(b"not looked into")
    found = CliRunner().invoke(app, ["reproduce", "imagenet-heads", "--data", str(tmp_path), "--check"])
    assert found.exit_code == 1
    assert "training pictures: 2; stated: 1,281,167" in found.output
    assert "validation pictures: nothing" in found.output
    assert "image-net.org" in found.output


@pytest.mark.slow
def test_a_table_is_run_shown_and_written(tmp_path: Path) -> None:
    found = run("reproduce", "imagenet-a1", "--seeds", "1", "--output", str(tmp_path / "out"), "--write", str(tmp_path))
    assert found.returncode == 0, found.stderr
    assert "ML-Decoder, seed 0: begins" in found.stdout
    assert "80.7" in found.stdout
    assert "cannot be told from one seed" in found.stdout
    assert (tmp_path / "reproduce-imagenet-a1.md").is_file()


def test_a_wrong_table_is_one_line() -> None:
    found = run("reproduce", "heads-cocoa")
    assert found.returncode == 1
    assert found.stderr.strip() == "mldecoder: Unknown table 'heads-cocoa'. Did you mean 'heads-coco'?"
