"""Many small pictures, and what a lake's output holds."""

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.predict.pictures import scene

__all__ = ["draw_lake", "rows_in"]


def draw_lake(folder: Path, count: int, *, drawn: int = 50) -> None:
    """Many names of a few drawn pictures, JPEG and PNG, in folders of 500, as fast as they can be written."""
    few = folder.with_name(f"{folder.name}-few")
    few.mkdir(parents=True)
    kinds = ("jpg", "png")
    for i in range(drawn):
        scene(i).save(few / f"{i}.{kinds[i % 2]}")
    for i in range(count):
        kind = kinds[i % drawn % 2]
        path = folder / f"{i // 500:03}" / f"{i:05}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(few / f"{i % drawn}.{kind}", path)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """All rows of an output, by path."""
    rows: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return sorted(rows, key=lambda row: str(row["path"]))
