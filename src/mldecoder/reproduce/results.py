"""The results of many calls in one file, ``results.json``: a record a run."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mldecoder.errors import DataError

__all__ = ["Record", "Results"]


@dataclass(frozen=True)
class Record:
    """A finished run; everything but ``metrics``, ``seconds``, ``version`` and ``device`` was decided before it."""

    key: str
    table: str
    row: str
    seed: int
    budget: str
    data: str
    recipe: str
    overrides: tuple[str, ...]
    init_from: str | None
    metrics: dict[str, float]
    seconds: float
    version: str
    device: str


class Results:
    """The file; it is read anew before every change, so that calls one after the other add to it.

    Args:
        path: Of the file; it need not be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read()

    def read(self) -> list[Record]:
        """All records."""
        if not self.path.is_file():
            return []
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            return [Record(**{**entry, "overrides": tuple(entry["overrides"])}) for entry in content["records"]]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self.path} must hold the results of mldecoder reproduce; it cannot be read ({error}). "
                "Move it away, and finished runs are read from their folders."
            ) from None

    def find(self, key: str) -> Record | None:
        """The record of a run, where it is finished."""
        return next((record for record in self.read() if record.key == key), None)

    def of(self, keys: Sequence[str]) -> dict[str, Record]:
        """The records of runs, by key, of those that are finished."""
        wanted = set(keys)
        return {record.key: record for record in self.read() if record.key in wanted}

    def add(self, record: Record) -> None:
        """Take a record in; an older one of the same run is replaced. The file is whole at any moment."""
        records = [other for other in self.read() if other.key != record.key] + [record]
        content: dict[str, Any] = {"records": [asdict(entry) for entry in records]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f".{self.path.name}.part")
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        part.replace(self.path)
