"""The tool that measures average precision at scale, at a small scale."""

import json
from pathlib import Path

import numpy as np
import pytest
from tools.metric_speed import data, extra_memory, measure, table


def test_data_are_the_same_every_time_and_have_their_share_of_positives() -> None:
    scores, targets = data(2500, 20, 0.01, "cpu")
    again = data(2500, 20, 0.01, "cpu")
    assert scores.equal(again[0])
    assert targets.equal(again[1])
    assert targets.float().mean().item() == pytest.approx(0.01, abs=0.002)
    assert scores[targets > 0].mean() > scores[targets == 0].mean() + 1.5


def test_memory_held_during_a_call_is_seen() -> None:
    def hold() -> float:
        return float(np.ones(8 * 2**20)[::2].sum())  # 64 MiB

    value, extra = extra_memory(hold, "cpu")
    assert value == 4 * 2**20
    assert 50 < extra < 120


def test_a_result_becomes_a_table(tmp_path: Path) -> None:
    result = measure(1000, 24, part=6, turns=3, share=0.05, rounds=2, device="cpu")
    assert float(str(result["largest difference"])) < 1e-6
    assert result["part"] == 6
    cuda = result | {"device": "cuda", "hardware": "a card", "stops": {"24": 2, "3": 2}}
    for results in ([result], json.loads(json.dumps([result, cuda]))):
        table(results, "0000000", "A note.").write(tmp_path)
        rows = json.loads((tmp_path / "map-scale.json").read_text())["rows"]
        assert [row["on"] for row in rows] == [r["device"] for r in results for _ in range(2)]
    text = (tmp_path / "map-scale.md").read_text()
    assert "24 classes x 1,000 images" in text
    assert "A note." in text
    assert "waits for the device 2 times for 24 classes and 2 times for 3 classes" in text


def test_the_tool_needs_no_timm() -> None:
    import subprocess
    import sys

    code = "import sys, tools.metric_speed; sys.exit('timm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_ratio_to_quote_takes_the_fastest_turn_of_any_result() -> None:
    told: dict[str, object] = {"device": "cpu", "hardware": "a", "images": 10, "share": 0.1, "classes": 100}
    told |= {"largest difference": 0.0, "our memory": 1.0, "their memory": 2.0}
    quiet = told | {"part": 5, "our seconds": [1.0, 2.0], "their seconds": [0.5, 5.0, 5.0, 10.0]}
    busy = told | {"part": 10, "our seconds": [4.0], "their seconds": [20.0], "load": [3.0, 8.0]}
    rows = table([quiet, busy, busy | {"hardware": "b"}], "0000000").rows
    assert [row["at least"] for row in rows[::2]] == ["10", "2.5", "50"]
    assert [row["faster"] for row in rows[::2]] == ["65 (55 to 75)", "50 (50 to 50)", "50 (50 to 50)"]
    assert [row["load"] for row in rows[::2]] == ["", "3.0 to 8.0", "3.0 to 8.0"]
