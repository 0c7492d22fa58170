"""The speed of the head against its targets: one table out of the tables that ``mldecoder bench heads`` measured.

    B="mldecoder bench heads --heads gap,ml-decoder"
    $B --classes 1000,100000 --peer mldecoder.bench.plain:PlainMLDecoder --repeats 15 --out out/eager
    $B --classes 1000,100000 --peer mldecoder.bench.plain:PlainMLDecoder --repeats 8 --graph --out out/graph
    $B --backbone resnet50 --classes 1000 --compile both --mode infer --out out/net-infer
    $B --backbone resnet50 --classes 1000 --compile both --mode train --autocast --repeats 7 --out out/net-train
    $B --backbone resnet50 --classes 1000 --mode train --autocast --memory-cap 16GiB --repeats 3 --out out/cap
    python -m tools.head_speed out --commit HASH

The column "official" is what the official code took on the same hardware, from the project's field report.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.tables import HOME, Table

__all__ = ["rows", "write"]

Row = Mapping[str, Any]
OURS, GAP, PLAIN = "ml-decoder", "gap", "mldecoder.bench.plain:PlainMLDecoder"
RUNS = ("eager", "graph", "net-infer", "net-train", "cap")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the five runs of a folder and write ``benchmarks/head-speed``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="Folder with the five runs.")
    parser.add_argument("--commit", required=True)
    parser.add_argument("--note", default="", help="What else a reader should know about these runs.")
    given = parser.parse_args(arguments)
    runs = {name: json.loads((given.folder / name / "heads.json").read_text(encoding="utf-8")) for name in RUNS}
    write(runs, given.commit, note=given.note)


def rows(runs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, object]]:
    """The lines of the table: what was measured beside what was wanted."""

    def cell(run: str, head: str, mode: str, classes: int = 1000, compiled: bool = False) -> Row:
        wanted = {"head": head, "mode": mode, "classes": classes, "compiled": compiled}
        found: Row = next(row for row in runs[run]["rows"] if all(row[key] == wanted[key] for key in wanted))
        return found

    def micros(run: str, mode: str, classes: int) -> dict[str, object]:
        ours, plain = (cell(run, head, mode, classes)["us_per_image"] for head in (OURS, PLAIN))
        return {"measured": f"{ours:.2f} us/image", "plain head, same run": f"{plain:.1f} us/image"}

    def above(run: str, key: str, mode: str, compiled: bool = False) -> dict[str, object]:
        ours, gap = (cell(run, head, mode, compiled=compiled)[key] for head in (OURS, GAP))
        return {"measured": f"+{100 * (ours / gap - 1):.1f}%", "plain head, same run": ""}

    def line(figure: str, official: str, target: str, found: dict[str, object]) -> dict[str, object]:
        return {"figure": figure, "official": official, "target": target} | found

    largest = cell("cap", OURS, "train")["largest_batch"], cell("cap", GAP, "train")["largest_batch"]
    share: dict[str, object] = {"measured": f"{largest[0]} of {largest[1]}: {100 * largest[0] / largest[1]:.1f}%"}
    return [
        line("head, inference, N=1,000", "13.9 us", "<= 2.2", micros("eager", "infer", 1000)),
        line("the same, replayed as a CUDA graph", "", "", micros("graph", "infer", 1000)),
        line("head, forward + backward, N=1,000, CUDA graph", "145 us", "<= 9", micros("graph", "train", 1000)),
        line("the same, started by the host", "", "", micros("eager", "train", 1000)),
        line("head, forward + backward, N=100,000, CUDA graph", "226 us", "<= 11", micros("graph", "train", 100_000)),
        line("the same, started by the host", "", "", micros("eager", "train", 100_000)),
        line("ResNet-50, inference above GAP, eager", "15%", "<= 3%", above("net-infer", "us_per_image", "infer")),
        line("the same, compiled", "", "<= 2%", above("net-infer", "us_per_image", "infer", compiled=True)),
        line("ResNet-50, training above GAP, eager", "26%", "<= 4%", above("net-train", "us_per_image", "train")),
        line("the same, compiled", "", "<= 4%", above("net-train", "us_per_image", "train", compiled=True)),
        line("peak training memory above GAP, eager", "8.7%", "<= 3%", above("net-train", "peak_bytes", "train")),
        line("the same, compiled", "", "", above("net-train", "peak_bytes", "train", compiled=True)),
        line("largest training batch under 16 GiB, of GAP's", "89% (paper)", ">= 96%", share),
    ]


def write(runs: Mapping[str, Mapping[str, Any]], commit: str, home: Path = HOME, *, note: str = "") -> None:
    """Write the table."""
    first = runs["eager"]
    commands = "\n".join(f"- `{runs[name]['command']}`" for name in RUNS)
    host, device = (
        next(r["us_per_image"] for r in runs[name]["rows"] if r["head"] == GAP and r["mode"] == "train")
        for name in ("eager", "graph")
    )
    Table(
        "head-speed",
        "The head's speed against its targets",
        "python -m tools.head_speed out",
        commit,
        f"{first['hardware']['text']}, {first['hardware']['cpu']}, torch {first['versions']['torch']}, "
        f"triton {first['versions']['triton']}",
        rows(runs),
        text=(
            "bf16, batch 256, 7x7x2048 tokens, D=768, K=100; networks at 224 px, channels last, training under "
            "autocast with float32 weights and an SGD step. The plain head is written from the paper's pseudo-code: "
            "a loop over the groups, attention weights held. Started by the host, a training step of the head alone "
            f"waits for that host, which is slow here: GAP's step, a handful of kernels, takes {host:.2f} us/image "
            f"started by it and {device:.2f} as a graph. In a network the device is the one that is waited for. "
            f"{note}\n\n"
            f"The runs:\n\n{commands}"
        ),
    ).write(home)


if __name__ == "__main__":
    main()
