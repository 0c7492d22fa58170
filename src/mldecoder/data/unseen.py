"""Which labels are never trained: a list, a file, or a split that comes with the data."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mldecoder.data import scenes
from mldecoder.data.dataset import ImageSet
from mldecoder.errors import ConfigError, did_you_mean

__all__ = ["hold_out", "named_labels"]


def named_labels(wish: str | Sequence[str], train: ImageSet, option: str = "data.unseen") -> tuple[str, ...]:
    """Some of the labels, in the order of the data: those that are not to be trained.

    Args:
        wish: The labels themselves; ``scenes``, the nine pairs of the embedded set; ``nus-wide``, the 81 concepts that
            the reader leaves unknown in training with ``nus_labels: "1006"``; or a file: text with a label a line, or
            JSON with a list. ``FILE.json#KEY`` takes one entry of a JSON file, its ``unseen`` where it has one.
        train: The training part, with all labels.
        option: What the option is called, for errors.
    """
    names = _named(wish, train, option) if isinstance(wish, str) else list(wish)
    for name in names:
        if name not in train.labels:
            hint = did_you_mean(name, train.labels, f"They begin with {', '.join(train.labels[:3])}.")
            raise ConfigError(f"{option} must name labels of the data, got {name!r}. {hint}")
    chosen = tuple(label for label in train.labels if label in set(names))
    if not chosen or len(chosen) == len(train.labels):
        raise ConfigError(
            f"{option} must name some of the labels and leave some to train, got {len(chosen)} of {len(train.labels)}."
        )
    return chosen


def hold_out(train: ImageSet, val: ImageSet, unseen: Sequence[str]) -> tuple[ImageSet, ImageSet]:
    """Training pictures with the seen labels alone, and validation pictures with all: seen first, then unseen.

    Pictures keep their place: what has only unseen labels is a picture without any in training.
    """
    seen = [label for label in train.labels if label not in set(unseen)]
    return train.keep_labels(seen), val.keep_labels([*seen, *unseen])


def _named(wish: str, train: ImageSet, option: str) -> list[str]:
    if wish == "scenes":
        return list(scenes.UNSEEN)
    if wish == "nus-wide":
        counts = train.targets.counts()
        unknown = np.flatnonzero(counts.positives + counts.negatives == 0)
        if not len(unknown):
            raise ConfigError(
                f"{option}=nus-wide needs labels that are unknown in training. Set data.options.nus_labels=1006."
            )
        return [train.labels[i] for i in unknown]
    path, _, key = wish.partition("#")
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"{option} must be a list of labels, scenes, nus-wide or a file, got {wish!r}.")
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".json":
        return [line.strip() for line in text.splitlines() if line.strip()]
    return _from_json(file, text, key, option)


def _from_json(file: Path, text: str, key: str, option: str) -> list[str]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file} is not valid JSON: {error}.") from None
    if key:
        if not isinstance(content, dict) or key not in content:
            known = ", ".join(content) if isinstance(content, dict) else "a list"
            raise ConfigError(f"{option}: {file} has no entry {key!r}, it has {known}.")
        content = content[key]
    if isinstance(content, dict) and "unseen" in content:
        content = content["unseen"]
    if isinstance(content, dict):
        raise ConfigError(f"{option}: say which entry of {file} to take, as in {file.name}#{next(iter(content))}.")
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise ConfigError(f"{option}: {file} must hold a list of labels.")
    return content
