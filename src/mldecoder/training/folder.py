"""A run is a folder; killing its process at any moment leaves a usable one."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from mldecoder import __version__
from mldecoder.errors import TrainingError
from mldecoder.recipes import Recipe

__all__ = ["RunFolder"]


class RunFolder:
    """The files of a run.

    ``run.yaml`` holds data and resolved recipe, ``metrics.jsonl`` a line an epoch, ``metrics.json`` the end,
    ``best``, ``last`` and ``ema`` are model folders, ``checkpoint.pt``, or ``checkpoint`` where the
    model is in shards, is what ``--resume`` goes on from.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.settings = self.path / "run.yaml"
        self.history = self.path / "metrics.jsonl"
        self.metrics = self.path / "metrics.json"
        self.checkpoint = self.path / "checkpoint.pt"
        self.shards = self.path / "checkpoint"
        self.report = self.path / "report.html"
        self.best, self.last, self.ema = (self.path / name for name in ("best", "last", "ema"))

    def start(self, data: str, recipe: Recipe) -> None:
        """Make the folder; an older run in it is not overwritten."""
        if self.settings.exists():
            raise TrainingError(f"{self.path} holds a run already. Pass --resume to go on, or another --output.")
        self.path.mkdir(parents=True, exist_ok=True)
        content = {"data": data, "recipe": recipe.model_dump(mode="json")}
        write(self.path / "environment.json", json.dumps(_environment(), indent=2))
        write(self.settings, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))

    def read(self) -> tuple[str, Recipe]:
        """Data and recipe of the run."""
        if not self.settings.is_file():
            raise TrainingError(f"There is no run in {self.path}: {self.settings.name} is missing.")
        content = yaml.safe_load(self.settings.read_text(encoding="utf-8"))
        return content["data"], Recipe.model_validate(content["recipe"])

    def read_history(self) -> list[dict[str, float]]:
        """The epochs so far."""
        return [json.loads(line) for line in self.history.read_text(encoding="utf-8").splitlines()]

    def write_history(self, rows: list[dict[str, float]]) -> None:
        """All epochs so far, a line each."""
        write(self.history, "".join(json.dumps(row) + "\n" for row in rows))

    def write_tensorboard(self, row: Mapping[str, float], epoch: int) -> None:
        """One epoch for TensorBoard."""
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(self.path / "tensorboard")) as writer:
            for name, value in row.items():
                writer.add_scalar(name, value, epoch)

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """The final figures."""
        write(self.metrics, json.dumps(metrics, indent=2) + "\n")


def write(path: Path, text: str) -> None:
    """Write a file so that it is complete or not there."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _environment() -> dict[str, object]:
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "mldecoder": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "devices": devices,
    }
