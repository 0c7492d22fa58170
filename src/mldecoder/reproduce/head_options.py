"""Ours: the paper's head beside options of it. The rows stand in ``head_options.yaml``."""

from importlib.resources import files
from typing import Any

import yaml

from mldecoder.reproduce.settings import COCO
from mldecoder.reproduce.table import OURS, Claim, Row, Table

__all__ = ["read_options"]


def read_options() -> Table:
    """The table, with the rows of the file."""
    text = (files("mldecoder.reproduce") / "head_options.yaml").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = yaml.safe_load(text)
    rows = tuple(
        Row(
            entry["name"],
            tuple(entry["overrides"]),
            at={"tiny": tuple(entry.get("tiny", ()))},
            note=entry.get("note", ""),
        )
        for entry in entries
    )
    base = rows[0].name
    return Table(
        name="head-options",
        title="Ours: the paper's head beside options of it",
        source=OURS,
        data="coco",
        kind="multi-label",
        metrics=("mAP", "GMAC"),
        base=base,
        rows=rows,
        claims=tuple(Claim(f"{row.name} beats {base}", row.name, base, "above") for row in rows[1:]),
        full=COCO,
        note=(
            "Choose with --choose, which scores on a fifth of the training part, and then measure without it, once. "
            "What training costs in time is in benchmarks/head-options-time.md."
        ),
    )
