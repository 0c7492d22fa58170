"""Table files as columns of cells: CSV, TSV, JSON lines, JSON, Parquet."""

import csv
import json
from pathlib import Path
from typing import Any

from mldecoder.data.columns import Table
from mldecoder.data.layout import Part, part_of
from mldecoder.errors import DataError

__all__ = ["SUFFIXES", "load", "tables_of"]

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")


def load(file: Path) -> Table:
    """A table as columns of cells."""
    suffix = file.suffix.lower()
    try:
        if suffix == ".parquet":
            import pyarrow.parquet as pq

            return {name: column.to_pylist() for name, column in _columns(pq.read_table(file))}
        if suffix in {".csv", ".tsv"}:
            return _load_csv(file)
        text = file.read_text(encoding="utf-8-sig")
        records = json.loads(text) if suffix == ".json" else [json.loads(s) for s in text.splitlines() if s.strip()]
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{file} must be a table in {suffix[1:]} format; it cannot be read ({error}).") from None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise DataError(f"{file} must hold one object a picture, such as {{'path': ..., 'labels': [...]}}.")
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def _columns(table: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - pyarrow has no types
    from pyarrow import types

    columns = list(zip(table.column_names, table.columns, strict=True))
    for name, column in columns:
        if types.is_struct(column.type) and "bytes" in [field.name for field in column.type]:
            raise DataError(
                f"Column {name!r} holds whole pictures, as Hugging Face keeps them. Open the folder as hf:FOLDER."
            )
    return columns


def _load_csv(file: Path) -> Table:
    with file.open(newline="", encoding="utf-8-sig") as handle:
        head = handle.readline()
        marks = {mark: head.count(mark) for mark in ("\t", ",", ";")}
        handle.seek(0)
        rows = csv.reader(handle, delimiter=max(marks, key=lambda mark: marks[mark]))
        names = next(rows, [])
        if len(set(names)) != len(names):
            raise DataError(f"{file} must have a first line of different column names, got {names[:8]}.")
        cells: list[list[object]] = [[] for _ in names]
        for row in rows:
            if not row:
                continue
            if len(row) != len(names):
                raise DataError(
                    f"Line {rows.line_num} of {file} must have {len(names)} cells as the first line, got {len(row)}. "
                    "Put cells that hold a comma in quotes."
                )
            for column, cell in zip(cells, row, strict=True):
                column.append(cell)
    return dict(zip(names, cells, strict=True))


def tables_of(folder: Path) -> dict[Part | None, Path]:
    """The one table of a folder, or its train, val and test tables."""
    if not folder.is_dir():
        return {}
    tables = [f for f in sorted(folder.iterdir()) if f.suffix.lower() in SUFFIXES and f.suffix != ".json"]
    parts = {part: file for file in tables if (part := part_of(file.stem))}
    if "train" in parts:
        return {part: file for part, file in parts.items()}  # noqa: C416 - widens the type
    if len(tables) > 1:
        names = ", ".join(file.name for file in tables[:8])
        raise DataError(f"{folder} holds several tables ({names}). Give the path of the one that you mean.")
    return {None: tables[0]} if tables else {}
