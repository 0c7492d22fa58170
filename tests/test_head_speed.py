"""The table of speeds: made of runs, every figure from its own."""

from pathlib import Path
from typing import Any

from tools.head_speed import GAP, OURS, PLAIN, rows, write


def run(name: str) -> dict[str, Any]:
    """A run as ``mldecoder bench heads`` writes it, with figures that tell where they came from."""
    base = {"eager": 1.0, "graph": 2.0, "net-infer": 3.0, "net-train": 4.0, "cap": 5.0}[name]
    cells = [
        {
            "head": head,
            "mode": mode,
            "classes": classes,
            "compiled": compiled,
            "us_per_image": base * weight * (1 + (mode == "train") + 2 * (classes > 1000) + 4 * compiled),
            "peak_bytes": 100 * weight,
            "largest_batch": int(100 / weight),
        }
        for head, weight in ((GAP, 1.0), (OURS, 1.25), (PLAIN, 10.0))
        for mode in ("train", "infer")
        for classes in (1000, 100_000)
        for compiled in (False, True)
    ]
    hardware = {"text": "a card", "cpu": "a host"}
    return {"command": f"bench {name}", "rows": cells, "hardware": hardware, "versions": {"torch": "2", "triton": "3"}}


def test_every_line_is_read_from_its_run(tmp_path: Path) -> None:
    runs = {name: run(name) for name in ("eager", "graph", "net-infer", "net-train", "cap")}
    found = {str(row["figure"]): row["measured"] for row in rows(runs)}
    assert found["head, inference, N=1,000"] == "1.25 us/image"
    assert found["head, forward + backward, N=100,000, CUDA graph"] == "10.00 us/image"
    assert found["ResNet-50, training above GAP, eager"] == "+25.0%"
    assert found["largest training batch under 16 GiB, of GAP's"] == "80 of 100: 80.0%"
    write(runs, "commit", tmp_path)
    text = (tmp_path / "head-speed.md").read_text(encoding="utf-8")
    assert "takes 2.00 us/image started by it and 4.00 as a graph" in text
    assert "`bench cap`" in text
