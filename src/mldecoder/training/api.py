"""Train and evaluate, as functions; the command line calls these."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from mldecoder.errors import ConfigError
from mldecoder.heads.split_training import split_layers
from mldecoder.model import Classifier, load
from mldecoder.model.split_folder import load_split
from mldecoder.recipes import Recipe, load_recipe
from mldecoder.recipes.load import override
from mldecoder.training.build import build_model
from mldecoder.training.checkpoint import Progress
from mldecoder.training.checks import check
from mldecoder.training.console import Display
from mldecoder.training.folder import RunFolder
from mldecoder.training.loop import Trainer
from mldecoder.training.meeting import meet
from mldecoder.training.opening import held_out, opened, parts_of, source_of
from mldecoder.training.order import seed_everything
from mldecoder.training.overfit import overfit
from mldecoder.training.report import ReportData, write_report
from mldecoder.training.restarts import check_output, goes_on
from mldecoder.training.scoring import evaluate_model, main_metric

__all__ = ["Run", "choose_recipe", "evaluate", "overfit_batch", "train"]


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and its figures in percent."""

    path: Path
    metrics: dict[str, Any]

    def history(self) -> list[dict[str, float]]:
        """What each epoch gave."""
        return RunFolder(self.path).read_history()

    def model(self) -> Classifier:
        """The best weights of the run."""
        return load(self.path)


def train(
    data: str | Path | None = None,
    *,
    recipe: str | Path | Recipe | None = None,
    output: str | Path | None = None,
    init_from: str | Path | None = None,
    overrides: Sequence[str] = (),
    resume: bool = False,
    resume_if_there: bool = False,
    compare: Mapping[str, Sequence[Mapping[str, float]]] | None = None,
    quiet: bool = False,
) -> Run:
    """Train a model on pictures and tags, evaluate it, and leave everything in a run folder.

    Args:
        data: A folder, table, shards, ``hf:NAME`` or ``scenes``; the format is found out.
        recipe: A recipe's name, file or object; ``None`` takes ``quick`` (without an accelerator ``quick-cpu``),
            and ``scenes`` for the embedded pictures.
        output: The run folder; ``None`` makes one under ``runs/``.
        init_from: A file of backbone weights, or a model folder.
        overrides: Such as ``training.epochs=3``.
        resume: Go on with the run in ``output``.
        resume_if_there: Go on if ``output`` holds this very run, else begin it; what torchrun starts does so anyway.
        compare: Histories of other runs by name, to be drawn beside this one in the report.
        quiet: Print nothing.

    Example:
        >>> run = train("scenes", recipe="scenes", output="runs/first")  # doctest: +SKIP
        >>> run.metrics["mAP"]  # doctest: +SKIP
        89.03
    """
    check_output(output is not None)
    folder, source, chosen = _prepare(data, recipe, output, init_from, overrides, resume=resume)
    accelerator = _accelerator(chosen)
    display = Display(accelerator.is_main_process and not quiet)
    dataset = opened(source, chosen, display)
    for note in dataset.notes:
        display.say(f"Note: {note}")
    train_set, val_set = parts_of(dataset, chosen, display)
    train_set, val_set, unseen = held_out(train_set, val_set, chosen, display)
    if unseen:  # by name, so that a run needs no file to be evaluated or to go on
        chosen = chosen.model_copy(update={"data": chosen.data.model_copy(update={"unseen": unseen})})
    findings = check(train_set, val_set, chosen, dataset.task)
    for warning in findings.warnings:
        display.say(f"Warning: {warning}")
    folder = RunFolder(broadcast_object_list([str(folder.path)])[0])  # its name may hold the time of one process
    if not resume and accelerator.is_main_process:
        resume = goes_on(folder, str(source), chosen, wished=resume_if_there)
        if not resume:
            folder.start(str(source), chosen)
        _point_last_to(folder.path)
    resume = broadcast_object_list([resume])[0]
    try:
        seed_everything(chosen.training.seed)
        model = build_model(chosen, val_set.labels, dataset.task, display, unseen)
        display.say(f"Model: {_described(model)} on {accelerator.device.type}. Run: {folder.path}")
        trainer = Trainer(model, train_set, val_set, chosen, folder, accelerator, display)
        if resume:
            trainer.resume()
            display.say(_standing(trainer.progress, chosen))
        with display:
            progress = trainer.run()
        notes = [*findings.warnings, *trainer.broken.trained.report("training")]
        return _finish(trainer, progress, notes, compare or {})
    except KeyboardInterrupt:
        display.say(f"Stopped. Go on with: mldecoder train --resume --output {folder.path}")
        raise


def evaluate(
    model: str | Path | Classifier,
    data: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    quiet: bool = True,
) -> dict[str, float]:
    """Figures of a trained model on the validation part of a dataset, in percent.

    Other data than the run's own is measured whole where it has no validation part.

    Args:
        model: A run, a model folder or a model.
        data: The dataset; ``None`` takes the run's own.
        overrides: Such as ``evaluation.flip=true``, ``evaluation.size=288`` or, for a zero-shot model,
            ``text.neighbours=0.7``.
        quiet: Print nothing.
    """
    source, chosen = data, load_recipe("quick", overrides)
    if not isinstance(model, Classifier):
        folder = RunFolder(model)
        if folder.settings.is_file():
            own, recipe = folder.read()
            source, chosen = data or own, _overridden(recipe, overrides)
            data = None if data is None or source_of(data) == own else data
        model = load(model)
    if any(words.startswith("text.neighbour") for words in overrides):
        model = deepcopy(model)
        model.ask_neighbours(chosen.text.neighbours, chosen.text.neighbour_temperature)
    if source is None:
        raise ConfigError("Say what to evaluate on: pass --data.")
    accelerator = _accelerator(chosen)
    display = Display(accelerator.is_main_process and not quiet)
    dataset = opened(source, chosen, display)
    part = parts_of(dataset, chosen, display)[1] if source != data else dataset.val or dataset.train
    missing = [label for label in part.labels if label not in model.labels]
    if missing and model.zero_shot:
        display.say(f"Note: {len(missing)} labels of the data ({missing[0]}, ...) are new to the model: asked by word.")
    elif missing:
        display.say(f"Note: the model does not know {len(missing)} labels of the data ({missing[0]}, ...): left out.")
    known = [label for label in model.labels if label in set(part.labels)]
    known += missing if model.zero_shot else []
    if not known:
        raise ConfigError(
            f"Model and data share no label: the model knows {model.labels[0]!r}, the data {part.labels[0]!r}."
        )
    if list(model.labels) != known:
        model = deepcopy(model)  # the caller's own keeps its labels
        model.set_labels(known)
    result, scores = evaluate_model(model.to(accelerator.device), part.keep_labels(known), chosen, accelerator)
    for line in scores.broken.report("validation"):
        display.say(line)
    return result


def overfit_batch(
    data: str | Path | None = None,
    *,
    recipe: str | Path | Recipe | None = None,
    init_from: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> bool:
    """See whether the model can learn one batch by heart, and say so; nothing is written."""
    source = source_of(data)
    chosen = choose_recipe(recipe, source, init_from, overrides)
    accelerator = _accelerator(chosen)
    display = Display(accelerator.is_main_process)
    dataset = opened(source, chosen, display)
    train_set = held_out(dataset.train, dataset.train, chosen, display)[0]
    seed_everything(chosen.training.seed)
    model = build_model(chosen, train_set.labels, dataset.task, display)
    with display:
        before, after = overfit(model, train_set, chosen, accelerator, display)
    learnt = after < 0.2 * before
    verdict = "the model learns" if learnt else "it does not learn: look at labels, loss and learning rate"
    display.say(f"Loss on one batch: {before:.3f} before, {after:.3f} after 100 steps; {verdict}.")
    return learnt


def _prepare(
    data: str | Path | None,
    recipe: str | Path | Recipe | None,
    output: str | Path | None,
    init_from: str | Path | None,
    overrides: Sequence[str],
    *,
    resume: bool,
) -> tuple[RunFolder, str, Recipe]:
    if resume:
        folder = RunFolder(output or Path("runs") / "last")
        source, chosen = folder.read()
        if overrides or any(word is not None for word in (data, recipe, init_from)):
            raise ConfigError("--resume goes on with the run as it is: leave out every option but --output.")
        return folder, source, chosen
    source = source_of(data)
    chosen = choose_recipe(recipe, source, init_from, overrides)
    name = output or Path("runs") / f"{Path(source).stem or 'data'}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    return RunFolder(name), source, chosen


def choose_recipe(
    recipe: str | Path | Recipe | None, source: str, init_from: str | Path | None, overrides: Sequence[str]
) -> Recipe:
    """The recipe asked for, or the one that fits data and machine, with its overrides."""
    if recipe is None:
        recipe = "scenes" if source == "scenes" else "quick" if torch.cuda.is_available() else "quick-cpu"
    extra = [*overrides, *([] if init_from is None else [f"backbone.init_from={init_from}"])]
    return _overridden(recipe, extra) if isinstance(recipe, Recipe) else load_recipe(recipe, extra)


def _overridden(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    return override(recipe.model_dump(mode="json"), overrides, recipe.name) if overrides else recipe


def _accelerator(recipe: Recipe) -> Accelerator:
    wish = recipe.training.precision
    if wish == "auto":
        wish = "bf16" if torch.cuda.is_available() else "fp32"
    precision = "no" if wish == "fp32" else wish
    meet()
    return Accelerator(mixed_precision=precision, cpu=not torch.accelerator.is_available())


def _described(model: Classifier) -> str:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    for layer in split_layers(model):  # with what the other processes hold
        whole = layer.num_queries * layer.width * layer.group_size + layer.num_classes
        parameters += whole - sum(parameter.numel() for parameter in layer.parameters())
    millions = parameters / 1e6
    config = model.config
    return f"{config.backbone.name} with {config.head.kind}, {millions:.1f} M parameters, {model.num_classes} labels"


def _standing(progress: Progress, recipe: Recipe) -> str:
    """Where a run that is gone on with stands."""
    if progress.epoch == recipe.training.epochs:
        return "All epochs are trained; figures and report are made again."
    return f"Going on at epoch {progress.epoch + 1}, step {progress.step + 1}."


def _finish(
    trainer: Trainer, progress: Progress, notes: list[str], compare: Mapping[str, Sequence[Mapping[str, float]]]
) -> Run:
    """Figures of the best weights, and the report."""
    folder, recipe, accelerator, val_set = trainer.folder, trainer.recipe, trainer.accelerator, trainer.val_set
    display = trainer.display
    accelerator.wait_for_everyone()
    split = recipe.training.parallel == "split"
    model = (load_split(folder.best) if split else load(folder.best)).to(accelerator.device)
    found, scores = evaluate_model(model, val_set, recipe, accelerator, trainer.evaluation_batches())
    metric = main_metric(model.config.task, model.unseen)
    last = progress.history[-1]
    metrics: dict[str, Any] = dict(found)
    metrics |= {f"last_{metric}": last[metric], "best": progress.best_source, "epochs": len(progress.history)}
    if f"ema_{metric}" in last:
        metrics[f"ema_{metric}"] = last[f"ema_{metric}"]
    metrics["seconds"] = sum(row["seconds"] for row in progress.history)
    if accelerator.is_main_process:
        folder.write_metrics(metrics)
        data = ReportData(
            title=f"{folder.path.name}: {model.config.backbone.name} with {model.config.head.kind}",
            task=model.config.task,
            labels=model.labels,
            unseen=model.unseen,
            settings=recipe.model_dump(mode="json"),
            history=progress.history,
            metrics=found,
            scores=scores.probabilities(model.config.task),
            targets=scores.targets,
            validation=val_set.select(scores.indices.numpy()),
            notes=[*notes, *scores.broken.report("validation")],
            compare=compare,
        )
        write_report(folder.report, data)
    display.say(f"Best {metric} {found[metric]:.2f} ({progress.best_source}). Report: {folder.report}")
    return Run(folder.path, metrics)


def _point_last_to(path: Path) -> None:
    """Let ``runs/last`` mean this run, where links can be made."""
    link = path.parent / "last"
    if link.exists() and not link.is_symlink():
        return
    part = path.parent / ".last.part"
    try:
        part.unlink(missing_ok=True)
        part.symlink_to(path.name)
        part.replace(link)
    except OSError:
        part.unlink(missing_ok=True)
