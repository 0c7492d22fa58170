"""From a table and what the user says to the runs that it takes."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mldecoder.config import MLDecoderConfig, ZeroShotConfig
from mldecoder.errors import ConfigError
from mldecoder.recipes import Recipe, load_recipe
from mldecoder.reproduce.settings import setting_of
from mldecoder.reproduce.table import Budget, Row, Table

__all__ = ["Job", "Wish", "estimate", "plan", "portable", "slug"]

_PLACE = re.compile(r"\{(N|seed)(?:/(\d+))?\}")
_FOLDERS = re.compile(r"(?<![\w./~-])[~.]?/(?:[^\s/,:#\"']+/)*")
_NOT_DECISIVE = {
    "training": ("log_every", "save_every", "checkpoint_minutes", "checkpoint_steps"),
    "data": ("workers",),
}
_PAPER_SPEED = 600  # pictures a second of TResNet-M at 224 px in training, the paper's V100 (throughput table)


@dataclass(frozen=True)
class Wish:
    """What the user says about the runs.

    Attributes:
        data: Folder, table or name; the drawn pictures in the tiny budget.
        backbone: In place of every row's own.
        init_from: A file of weights, or a folder with a file ``BACKBONE.safetensors`` for each backbone.
        seeds: How many, from 0 on.
        budget: tiny, small or full.
        output: The folder of the runs and of the results.
        rows: Some of the rows; all where it is empty.
        overrides: Further ones of every run, such as ``training.epochs=3``.
        choose: Whether ``data`` is a split of the training part, to choose on: other figures than the table's.
    """

    data: str
    budget: Budget
    output: Path
    backbone: str | None = None
    init_from: Path | None = None
    seeds: int = 3
    rows: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    choose: bool = False

    @property
    def data_name(self) -> str:
        """The data's name; paths belong to one machine, and stay out of what is written."""
        return f"{self.data_word}, a fifth of its training part" if self.choose else self.data_word

    @property
    def data_word(self) -> str:
        """What ``--data`` was told, without folders."""
        return Path(self.data).name or self.data


@dataclass(frozen=True)
class Job:
    """One run: what ``mldecoder train`` is told, and where it goes.

    ``key`` is the same on every machine for the same run, and another one for any other settings. ``settings`` is a
    fingerprint of the whole recipe.
    """

    table: str
    row: str
    seed: int
    budget: Budget
    data: str
    data_name: str
    recipe: str
    overrides: tuple[str, ...]
    init_from: str | None
    measures: tuple[str, ...]
    folder: str
    settings: str = ""

    @property
    def key(self) -> str:
        """A fingerprint of everything that decides the result; rows of other tables may have the same one.

        Where nothing is trained, that is the row of the table.
        """
        init = None if self.init_from is None else Path(self.init_from).name
        own = [self.settings] if self.settings else [self.table, self.row, self.recipe, *map(portable, self.overrides)]
        parts = [self.seed, self.budget, self.data_name, init, self.measures, own]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def plan(table: Table, wish: Wish, num_labels: int) -> list[Job]:
    """The runs of a table, seed by seed, so that every row has its first seed before any has its second."""
    if wish.seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, got {wish.seeds}.")
    rows = table.run_rows(wish.budget)
    if wish.rows:
        named = [table.row(name) for name in wish.rows]
        for row in named:
            if row not in rows:
                why = row.note or "the paper cites it from others"
                raise ConfigError(f"The row {row.name!r} is not run in the {wish.budget} budget: {why}.")
        rows = [row for row in rows if row in named]
    return [_job(table, row, seed, wish, num_labels) for seed in range(wish.seeds) for row in rows]


def estimate(table: Table, budget: Budget, seeds: int = 3) -> str:
    """How long a table takes, in words."""
    runs = seeds * len(table.run_rows(budget))
    if table.method == "bench":
        return {"tiny": "seconds", "small": "minutes", "full": "a quarter of an hour on a GPU"}[budget]
    if budget == "tiny":
        return f"{runs} runs of seconds"
    setting = setting_of(table, budget)
    if setting.pictures is None:
        return f"{runs} runs of {load_recipe(setting.recipe).training.epochs} epochs of your pictures"
    hours = 0.0
    for row in table.run_rows(budget):
        recipe = load_recipe(row.recipe or setting.recipe)
        area = (recipe.image.size / 224) ** 2
        hours += seeds * setting.pictures * recipe.training.epochs * area / _PAPER_SPEED / 3600
    time = f"{hours:,.0f} hours" if hours >= 1 else "less than an hour"
    return f"{runs} runs, about {time} at the paper's V100 speed of {_PAPER_SPEED} pictures a second at 224 px"


def portable(text: str) -> str:
    """The same without folders, which belong to one machine.

    Example:
        >>> portable("text.encoder=words:/home/me/vectors.npz")
        'text.encoder=words:vectors.npz'
    """
    return _FOLDERS.sub("", text)


def slug(text: str) -> str:
    """A name that can be a folder's."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _job(table: Table, row: Row, seed: int, wish: Wish, num_labels: int) -> Job:
    setting = setting_of(table, wish.budget)
    recipe = (row.recipe if wish.budget == "full" else None) or setting.recipe
    pooled = "head.kind=gap" in row.overrides
    own = [*setting.overrides, *(() if pooled else setting.decoder), *row.overrides, *row.at.get(wish.budget, ())]
    if wish.backbone is not None:
        own.append(f"backbone.name={wish.backbone}")
    own += wish.overrides
    overrides = [_filled(text, num_labels, seed) for text in _last_of_each(own)]
    overrides.append(f"training.seed={seed}")
    chosen = load_recipe(recipe, overrides)  # a wrong override is told before anything is trained
    if wish.budget != "full" and not any(text.startswith("training.eval_every=") for text in overrides):
        overrides.append(f"training.eval_every={chosen.training.epochs}")
    if wish.budget == "small":  # minutes on a GPU; longer ones have checkpoints by the clock
        overrides.append(f"training.save_every={chosen.training.epochs}")
    init = _weights(wish.init_from, chosen.backbone.name)
    job = Job(
        table.name,
        row.name,
        seed,
        wish.budget,
        wish.data,
        wish.data_name,
        recipe,
        tuple(overrides),
        init,
        table.measures,
        "",
        _fingerprint(load_recipe(recipe, overrides)),
    )
    folder = wish.output / "runs" / f"{slug(row.name)}-{seed}-{job.key[:6]}"
    return replace(job, folder=str(folder))


def _fingerprint(recipe: Recipe) -> str:
    """Of everything in a recipe that decides a result, whichever overrides led to it."""
    content = recipe.model_dump(mode="json", exclude={"name", "description", "expected"})
    for section, names in _NOT_DECISIVE.items():
        for name in names:
            del content[section][name]
    if not isinstance(recipe.head, ZeroShotConfig):
        del content["zero_shot"]
        if not (isinstance(recipe.head, MLDecoderConfig) and recipe.head.asks_by_words):
            del content["text"]
    return hashlib.sha256(portable(json.dumps(content, sort_keys=True)).encode()).hexdigest()


def _filled(text: str, num_labels: int, seed: int) -> str:
    def value(match: re.Match[str]) -> str:
        number = num_labels if match[1] == "N" else seed
        return str(max(1, number // int(match[2])) if match[2] else number)

    return _PLACE.sub(value, text)


def _last_of_each(overrides: Sequence[str]) -> list[str]:
    """Without those that a later one of the same key replaces."""
    last = {text.partition("=")[0]: text for text in overrides}
    return list(last.values())


def _weights(source: Path | None, backbone: str) -> str | None:
    """The file of a backbone's weights."""
    if source is None:
        return None
    if source.is_dir() and not (source / "config.json").is_file():
        file = source / f"{backbone.replace('/', '-')}.safetensors"
        if not file.is_file():
            raise ConfigError(f"--init-from {source} has no weights of {backbone}: {file.name} is missing.")
        return str(file)
    return str(source)
