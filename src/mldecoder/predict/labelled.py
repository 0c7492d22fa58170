"""Labelled pictures to measure a trained model on, and its scores over them."""

from collections.abc import Callable
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from mldecoder.data.dataset import ImageSet
from mldecoder.data.detect import open_dataset
from mldecoder.data.split import split_off
from mldecoder.errors import CheckpointError, ConfigError
from mldecoder.model import Classifier
from mldecoder.training.folder import RunFolder
from mldecoder.training.scoring import Scores, score

__all__ = ["labelled_part", "model_folder", "score_known"]


def model_folder(path: str | Path) -> Path:
    """The model folder that a path means: itself, or the best weights of a run, as ``mld.load`` chooses."""
    folder = Path(path)
    for candidate in (folder, folder / "best", folder / "last"):
        if (candidate / "config.json").is_file() and (candidate / "model.safetensors").is_file():
            return candidate
    raise CheckpointError(f"{path} is neither a run folder nor a model folder. Pass one that `mldecoder train` wrote.")


def labelled_part(run: str | Path, data: str | Path | None) -> ImageSet:
    """The validation part of a dataset, or all of it where it has none; without one, that of the run's own data."""
    folder = RunFolder(run)
    recipe = None
    if folder.settings.is_file():
        own, recipe = folder.read()
        data = own if data is None else data
    if data is None:
        raise ConfigError(f"{run} does not say what it was trained on. Pass the pictures to measure on with --data.")
    options: dict[str, object] = {}
    mine = recipe is not None and str(_full(data)) == str(_full(own))
    if recipe is not None and mine:
        options = recipe.data.options | ({} if recipe.data.task is None else {"task": recipe.data.task})
    dataset = open_dataset(data, options=options)
    if dataset.val is not None:
        return dataset.val
    if recipe is not None and mine:  # the very pictures that training held back
        return split_off(dataset.train, recipe.data.val_fraction, recipe.training.seed)[1]
    return dataset.train


def score_known(
    model: Classifier,
    part: ImageSet,
    *,
    batch_size: int = 32,
    workers: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[Scores, list[int]]:
    """Logits and targets of the labels that model and data share, and these labels' numbers in the model."""
    there = set(part.labels)
    columns = [i for i, label in enumerate(model.labels) if label in there]
    if not columns:
        raise ConfigError(
            f"Model and data share no label: the model knows {model.labels[0]!r}, the data {part.labels[0]!r}."
        )
    accelerator = Accelerator(cpu=not torch.accelerator.is_available())
    scores = score(
        _Columns(model.to(accelerator.device), columns),
        part.keep_labels([model.labels[i] for i in columns]),
        model.config.preprocessing,
        accelerator,
        batch_size=batch_size,
        workers=workers,
        advance=advance,
    )
    return scores, columns


class _Columns(nn.Module):
    """A model of which only some logits are wanted."""

    def __init__(self, model: Classifier, columns: list[int]) -> None:
        super().__init__()
        self.model, self.columns = model, columns

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits[:, self.columns]


def _full(data: str | Path) -> Path | str:
    path = Path(data).expanduser()
    return path.resolve() if path.exists() and str(data) != "scenes" else str(data)
