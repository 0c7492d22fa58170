"""The files: ``heads.json`` after every cell, ``heads.md`` and ``heads.png`` at the end."""

import json
from dataclasses import asdict
from typing import Any

from mldecoder.bench.machine import commit, hardware, versions
from mldecoder.bench.paper import SOURCE
from mldecoder.bench.place import Place
from mldecoder.bench.plot import plot
from mldecoder.bench.rows import Row, against_gap
from mldecoder.bench.settings import BenchSettings
from mldecoder.bench.sizes import show_bytes
from mldecoder.bench.table import markdown
from mldecoder.errors import ConfigError

__all__ = ["Report"]


class Report:
    """What was measured so far.

    Args:
        settings: What is measured.
        place: Where.
        total: How many rows there will be.
        command: The command that made it.
    """

    def __init__(self, settings: BenchSettings, place: Place, *, total: int, command: str | None = None) -> None:
        self.settings = settings
        self.total = total
        self.command = command or f"mldecoder.bench.bench_heads({settings!r})"
        self.rows: list[Row] = []
        self.finished = False
        self.notes = _notes(settings, place)
        self.hardware = hardware(place)
        self._where = {"commit": commit(), "hardware": self.hardware, "versions": versions()}
        self._precision = f"{place.precision}{' autocast' if place.autocast else ''}"
        if settings.out is not None:
            try:
                settings.out.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"The folder {settings.out} cannot be made ({error.strerror}). Name another."
                ) from None

    @property
    def title(self) -> str:
        """What the table shows, in a line."""
        settings = self.settings
        rows, columns = settings.tokens
        what = f"heads on {rows}x{columns}x{settings.features} features"
        if settings.backbone:
            what = f"{settings.backbone} at {settings.size} px with each head"
        how = ", steps replayed as CUDA graphs" if settings.graph else ""
        return f"{what}, {self._precision}, {self.hardware['text']}{how}"

    def add(self, row: Row) -> None:
        """Take a row in, at its place in the table, and write the JSON anew."""
        rows = [*self.rows, row]
        self.rows = against_gap(sorted(rows, key=self._place_of))
        self._write_json()

    def write(self) -> None:
        """Write every file; without matplotlib the plot is left out and a note says so."""
        out = self.settings.out
        if out is None:
            return
        (out / "heads.png").unlink(missing_ok=True)  # of an earlier run
        if any(row.us_per_image is not None for row in self.rows):
            try:
                plot(self.rows, self.title, out / "heads.png")
            except ImportError:
                self.notes.append("No plot: matplotlib is not installed.")
        (out / "heads.md").write_text(self._markdown(), encoding="utf-8")
        self._write_json()

    def document(self) -> dict[str, Any]:
        """Everything, as JSON holds it."""
        return {
            "command": self.command,
            **self._where,
            "settings": asdict(self.settings) | {"out": str(self.settings.out) if self.settings.out else None},
            "precision": self._precision,
            "finished": self.finished,
            "notes": self.notes,
            "paper": SOURCE,
            "rows": [asdict(row) for row in self.rows],
        }

    def _place_of(self, row: Row) -> tuple[int, ...]:
        settings = self.settings
        names = [*settings.heads, *settings.peers]
        return (
            settings.modes.index(row.mode),
            settings.classes.index(row.classes),
            names.index(row.head),
            row.queries or 0,
            int(row.compiled),
        )

    def _write_json(self) -> None:
        """Write beside the file and then over it, so that it is complete whenever the process ends."""
        if self.settings.out is None:
            return
        path = self.settings.out / "heads.json"
        fresh = path.with_suffix(".json.new")
        fresh.write_text(json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(path)

    def _markdown(self) -> str:
        where = self._where
        found = {name: number for name, number in versions().items() if number}
        lines = [
            f"# Cost of {self.title}",
            "",
            f"- command: `{self.command}`",
            f"- commit: {where['commit'] or 'unknown'}",
            f"- versions: {', '.join(f'{name} {number}' for name, number in found.items())}",
            *([] if self.finished else ["- stopped before the end"]),
            *(f"- {note}" for note in self.notes),
            "",
            *(f"{markdown(self.rows, mode)}\n" for mode in self.settings.modes),
        ]
        if self.settings.out and (self.settings.out / "heads.png").is_file():
            lines.append("![Cost against the number of classes](heads.png)\n")
        return "\n".join(lines)


def _notes(settings: BenchSettings, place: Place) -> list[str]:
    notes = [
        f"Median of up to {settings.repeats} repeats, spread = what lies between the quartiles; the heads took turns.",
        "GMAC: 1e9 multiply-adds of one image's forward pass, by torch's counter.",
    ]
    if settings.backbone:
        notes.append("Training: forward, binary cross-entropy, backward, plain SGD step. cuDNN tries its kernels.")
    else:
        notes.append("Training: forward and backward with a given gradient of the logits, down to the features.")
    if place.cuda:
        notes.append("Memory is what torch allocated at most: weights, input, activations, gradients.")
        if settings.wants_largest_batch:
            cap = show_bytes(settings.memory_cap or place.total_memory)
            what = "training" if "train" in settings.modes else "inference"
            notes.append(
                f"The largest batch is that of {what}, not compiled, under {cap} of allocator memory, "
                f"found by running out of it."
            )
    else:
        room = show_bytes(min(place.total_memory, settings.memory_cap or place.total_memory))
        notes.append(
            f"A CPU: memory and the largest batch are measured on GPUs only; OOM is an estimate against {room}."
        )
    if settings.memory_cap and place.cuda:
        notes.append(f"Cells that need more than {show_bytes(settings.memory_cap)} are OOM.")
    notes.append(f"Paper: {SOURCE}.")
    return notes
