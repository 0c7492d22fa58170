"""From what the user names as data to the pictures that are trained and measured."""

from dataclasses import replace
from pathlib import Path

from mldecoder.data.dataset import Dataset, ImageSet
from mldecoder.data.detect import open_dataset
from mldecoder.data.remote import is_url
from mldecoder.data.split import split_off
from mldecoder.data.unseen import hold_out, named_labels
from mldecoder.errors import ConfigError
from mldecoder.recipes import Recipe
from mldecoder.training.console import Display

__all__ = ["held_out", "opened", "parts_of", "source_of"]


def source_of(data: str | Path | None) -> str:
    """What to open; a path in full, so that a run can be resumed from another folder."""
    if data is None:
        return "scenes"
    if is_url(data):
        return str(data)
    path = Path(data).expanduser()
    return str(path.resolve()) if path.exists() and str(data) != "scenes" else str(data)


def opened(source: str | Path, recipe: Recipe, display: Display) -> Dataset:
    """The dataset, read as the recipe wishes; says what was found."""
    task = {} if recipe.data.task is None else {"task": recipe.data.task}
    dataset = open_dataset(source, options=recipe.data.options | task)
    display.say(f"Data: {dataset.description}.")
    if recipe.data.leave_out is not None:
        gone = set(named_labels(recipe.data.leave_out, dataset.train, "data.leave_out"))
        kept = [label for label in dataset.labels if label not in gone]
        val = None if dataset.val is None else dataset.val.keep_labels(kept)
        dataset = replace(dataset, train=dataset.train.keep_labels(kept), val=val)
        display.say(f"Left out: {len(gone)} labels, {len(kept)} remain.")
    return dataset


def parts_of(dataset: Dataset, recipe: Recipe, display: Display) -> tuple[ImageSet, ImageSet]:
    """The data's own validation part, or one split off."""
    if dataset.val is not None:
        return dataset.train, dataset.val
    train_set, val_set = split_off(dataset.train, recipe.data.val_fraction, recipe.training.seed)
    display.say(f"No validation part in the data: {len(val_set):,} pictures split off, {len(train_set):,} to train on.")
    return train_set, val_set


def held_out(
    train_set: ImageSet, val_set: ImageSet, recipe: Recipe, display: Display
) -> tuple[ImageSet, ImageSet, tuple[str, ...]]:
    """Both parts without what is never trained, or with it behind the rest, and the names of that."""
    if recipe.data.unseen is None:
        return train_set, val_set, ()
    if train_set.task == "single-label":
        raise ConfigError("data.unseen is for pictures with several labels, this data has one. Leave it out.")
    unseen = named_labels(recipe.data.unseen, train_set, "data.unseen")
    some = ", ".join(unseen[:5]) + (", ..." if len(unseen) > 5 else "")
    display.say(f"Zero-shot: {len(train_set.labels) - len(unseen)} labels are trained, {len(unseen)} never ({some}).")
    return *hold_out(train_set, val_set, unseen), unseen
