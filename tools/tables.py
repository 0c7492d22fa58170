"""Tables in ``benchmarks/``: NAME.md for people, NAME.json for programs, both from the same rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mldecoder.reproduce.interval import interval as student

HOME = Path(__file__).parents[1] / "benchmarks"

__all__ = ["HOME", "Table", "interval"]


@dataclass(frozen=True)
class Table:
    """A measured table and where it came from."""

    name: str
    title: str
    command: str
    commit: str
    hardware: str
    rows: Sequence[Mapping[str, object]]
    text: str = ""

    def write(self, home: Path = HOME) -> None:
        """Write both files."""
        columns = list(self.rows[0])
        lines = [
            f"# {self.title}",
            "",
            "| " + " | ".join(columns) + " |",
            "|" + "---|" * len(columns),
            *("| " + " | ".join(str(row.get(column, "")) for column in columns) + " |" for row in self.rows),
            "",
            self.text.strip(),
            "",
            f"Made by `{self.command}` at commit {self.commit} on {self.hardware}.",
            "",
        ]
        home.mkdir(exist_ok=True)
        (home / f"{self.name}.md").write_text("\n".join(lines), encoding="utf-8")
        content = {
            "command": self.command,
            "commit": self.commit,
            "hardware": self.hardware,
            "rows": [dict(row) for row in self.rows],
        }
        (home / f"{self.name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean and the ends of its confidence interval by Student's t."""
    found = student(values, level)
    return found.mean, found.low, found.high
