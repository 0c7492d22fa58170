"""The training loop.

One page from data to weights. Accelerate brings device, precision and processes; what is random is a function of the
seed and the step (:mod:`mldecoder.training.order`), so a checkpoint is weights, optimiser and a place to go on from.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from mldecoder.data.dataset import ImageSet
from mldecoder.data.transforms import AugmentConfig, normalise
from mldecoder.errors import CheckpointError, TrainingError
from mldecoder.model import Classifier
from mldecoder.recipes import Recipe
from mldecoder.training.broken import BrokenPictures
from mldecoder.training.checkpoint import CheckpointFile, Progress, Store
from mldecoder.training.console import Display
from mldecoder.training.ema import Ema
from mldecoder.training.folder import RunFolder
from mldecoder.training.grouped import grouped_training
from mldecoder.training.kept import keep_pictures
from mldecoder.training.loading import Batch, varied_batches
from mldecoder.training.mix import mix
from mldecoder.training.norms import settle_norms
from mldecoder.training.optim import build_optimiser, build_schedule
from mldecoder.training.order import EpochBatches, seed_everything
from mldecoder.training.parallel import parallel_of
from mldecoder.training.scoring import evaluate_model, main_metric
from mldecoder.training.sharded_checkpoint import CheckpointFolder
from mldecoder.training.shares import Shares
from mldecoder.training.zero_shot import WordTraining

__all__ = ["Trainer"]

_TOLD = {"mAP", "seen_mAP", "unseen_mAP", "top1"}


class Trainer:
    """Trains a model on a set, evaluating after each epoch and writing everything into a run folder.

    Args:
        model: What to train; its config says how it wants its pictures.
        train: Pictures to learn from.
        val: Pictures to choose the best weights on.
        recipe: The hyper-parameters.
        folder: Where everything is written.
        accelerator: Device, precision and processes.
        display: What the person sees.
    """

    def __init__(
        self,
        model: Classifier,
        train: ImageSet,
        val: ImageSet,
        recipe: Recipe,
        folder: RunFolder,
        accelerator: Accelerator,
        display: Display,
    ) -> None:
        settings = recipe.training
        self.recipe, self.settings, self.folder = recipe, settings, folder
        self.train_set, self.val_set = train, val
        self.accelerator, self.display = accelerator, display
        self.preprocessing = model.config.preprocessing
        self.progress = Progress()
        self.parallel = parallel_of(settings, accelerator)
        if settings.freeze == "backbone":
            model.backbone.requires_grad_(False)
        self.order = EpochBatches(
            len(train),
            settings.batch_size,
            seed=settings.seed,
            rank=accelerator.process_index,
            world=accelerator.num_processes,
            accumulate=settings.accumulate,
            repeats=recipe.augment.repeats,
        )
        self.broken = BrokenPictures(train, val, recipe.data.max_broken, accelerator, display)
        self.kept = keep_pictures(train, val, recipe, self.preprocessing, self.order, accelerator)
        if self.kept is not None:
            self.batches = self.kept.batches()
        else:
            self.batches = varied_batches(train, recipe, self.preprocessing, self.order, accelerator.device)
        self.loss = recipe.loss_of(model.config.task)
        self.ema = Ema(model, settings.ema_decay) if settings.ema_decay else None
        self.words = WordTraining(model, recipe.zero_shot) if model.zero_shot else None
        self.grouped = grouped_training(model, recipe)
        softmax = recipe.named_loss(model.config.task)[0] == "softmax"
        self.shares = Shares(
            self.loss,
            accelerator,
            settings.accumulate,
            rows=softmax,
            by_words=self.words is not None,
            whole=settings.parallel == "split",
        )
        trained, beside = self.words or self.grouped or model, self.words.says_random if self.words else None
        self.parallel.place(model, *([] if beside is None else [beside]))
        if self.ema is not None:
            self.parallel.place(self.ema.model)
        if self.words is not None:
            self.words.rows = self.words.rows.to(accelerator.device)
        optimiser = build_optimiser(model, recipe.optimiser, beside)
        self.schedule = build_schedule(optimiser, settings, settings.epochs * self.order.steps)
        self.plain = model
        self.model, self.optimiser = self.parallel.prepare(trained, optimiser)
        self.store: Store = CheckpointFile(folder.checkpoint, writes=accelerator.is_main_process)
        if settings.parallel != "ddp":
            self.store = CheckpointFolder(folder.shards, trained, main=accelerator.is_main_process)
        self.saved_at, self.time_to_save = time.monotonic(), False

    def run(self) -> Progress:
        """Train to the last epoch, from wherever the run stands."""
        for epoch in range(self.progress.epoch, self.settings.epochs):
            self._epoch(epoch)
            self._finish_epoch(epoch)
        self.store.finish()
        return self.progress

    def resume(self) -> None:
        """Go on from the run's checkpoint, if it got as far as writing one."""
        found = self.store.load(self._parts())
        other = self.folder.shards if self.settings.parallel == "ddp" else self.folder.checkpoint
        if found is None and other.exists():
            raise CheckpointError(
                f"{other} was not written with training.parallel={self.settings.parallel}. Put it back."
            )
        self.progress = found or self.progress
        self.broken.trained.add_all(self.progress.broken)

    def evaluation_batches(self) -> Iterator[Batch] | None:
        """This process's share of the validation pictures where they are kept; None where they are read anew."""
        return None if self.kept is None else self.kept.evaluation(self.display)

    def _epoch(self, epoch: int) -> None:
        steps, progress = self.order.steps, self.progress
        if self.kept is not None:
            self.kept.fill(self.display)
        self.order.set_place(epoch, progress.step)
        self.model.train()
        self.display.begin(f"Epoch {epoch + 1}/{self.settings.epochs}", steps, progress.step)
        started, first = time.monotonic(), progress.step
        waiting: list[tuple[Tensor, list[Batch]]] = []  # steps whose loss has not been looked at
        for step in range(progress.step, steps):
            waiting.append(self._step(epoch * steps + step))
            last = step + 1 == steps
            due = self.settings.checkpoint_steps is not None and (step + 1) % self.settings.checkpoint_steps == 0
            if last or due or self.accelerator.device.type == "cpu" or len(waiting) >= self.settings.log_every:
                progress.loss_sum += self._look_at(waiting, epoch, step)
                progress.step = step + 1
                speed = (step + 1 - first) * self.settings.batch_size / (time.monotonic() - started)
                mean = progress.loss_sum / progress.step
                self.display.advance(progress.step, f"loss {mean:.3f}  {speed:.0f} images/s")
            if (due or self.time_to_save) and not last:
                self._save_checkpoint()
        progress.seconds += time.monotonic() - started

    def _step(self, step: int) -> tuple[Tensor, list[Batch]]:
        """One optimiser step: its loss, still on the device, and its pictures."""
        goes = [next(self.batches) for _ in range(self.settings.accumulate)]  # a new epoch's loader draws a number
        seed_everything(self.settings.seed, step, self.accelerator.process_index)
        total = torch.zeros((), device=self.accelerator.device)
        weights = self.shares.weights(goes)
        augment = self.recipe.augment.in_epoch(step // self.order.steps, self.settings.epochs)
        for number, batch in enumerate(goes):
            last = number + 1 == len(goes)
            with self.parallel.go(self.model, last):
                loss = self._loss_of(batch, augment) * weights[number]
                self.accelerator.backward(loss)
            total += loss.detach()
        if self.settings.clip_norm is not None:
            self.parallel.clip(self.model, self.settings.clip_norm)
        self.optimiser.step()
        self.optimiser.zero_grad()
        if not self.accelerator.optimizer_step_was_skipped:
            self.schedule.step()
        if self.ema is not None:
            self.ema.update(self.plain, step)
        return total, [batch.without_images() for batch in goes]

    def _loss_of(self, batch: Batch, augment: AugmentConfig) -> Tensor:
        device = self.accelerator.device
        images = normalise(batch.images.to(device, non_blocking=True), self.preprocessing)
        targets = batch.targets.to(device, non_blocking=True)
        images, targets = mix(images, targets, augment)
        with self.accelerator.autocast():
            made: Any
            if self.words is None and self.grouped is None:
                made = self.model(images), targets
            else:  # words have targets of their own, groups their loss
                made = self.model(images, targets)
        loss: Tensor = made if self.grouped is not None else self.loss(*made)
        return loss

    def _look_at(self, waiting: list[tuple[Tensor, list[Batch]]], epoch: int, step: int) -> float:
        """Sum of the steps' losses; broken pictures are noted, and a loss that is no number ends the run.

        Whether it is time for a checkpoint is seen here too: clocks differ, and all processes must write the same one.
        """
        late = self.settings.checkpoint_steps is None and self._minutes() > self.settings.checkpoint_minutes
        losses = torch.stack([*(loss for loss, _ in waiting), torch.full_like(waiting[0][0], late)])
        *losses, late_too = self.accelerator.reduce(losses, reduction="mean").cpu()
        self.time_to_save = bool(late_too > 0)
        for number, (loss, (_, goes)) in enumerate(zip(losses, waiting, strict=True)):
            for batch in goes:
                self.broken.note(batch)
            if not torch.isfinite(loss):
                raise TrainingError(self._not_finite(float(loss), goes, epoch, step - len(waiting) + number + 1))
        waiting.clear()
        return float(sum(losses))

    def _not_finite(self, loss: float, goes: list[Batch], epoch: int, step: int) -> str:
        names = [self.train_set.pictures.name(int(i)) for batch in goes for i in batch.indices]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        good = self.store.finish() or "none yet"
        return (
            f"The loss is {loss} at epoch {epoch + 1}, step {step + 1}, on {shown}. Last good checkpoint: {good}. "
            f"Lower optimiser.lr, set training.clip_norm=1, or use training.precision=fp32."
        )

    def _finish_epoch(self, epoch: int) -> None:
        progress = self.progress
        self.broken.share(self._unread() if epoch == 0 else ())
        row: dict[str, float] = {
            "epoch": epoch + 1,
            "loss": progress.loss_sum / self.order.steps,
            "lr": float(self.schedule.get_last_lr()[-1]),
            "seconds": progress.seconds,
            "images_per_second": self.order.steps * self.settings.batch_size / max(progress.seconds, 1e-9),
        }
        last = epoch + 1 == self.settings.epochs
        if last and self.settings.settle_norms:
            self._settle_norms()
        if last or (epoch + 1) % self.settings.eval_every == 0:
            row |= self._evaluate(epoch)
        progress.history.append(row)
        progress.epoch, progress.step, progress.loss_sum, progress.seconds = epoch + 1, 0, 0.0, 0.0
        if self.accelerator.is_main_process:
            self.folder.write_history(progress.history)
            self.folder.write_tensorboard(row, progress.epoch)
        if last or (epoch + 1) % self.settings.save_every == 0:
            self.parallel.save(self.plain, self.folder.last)
            if self.ema is not None:
                self.parallel.save(self.ema.model, self.folder.ema)
            self._save_checkpoint()
        told = {key: value for key, value in row.items() if key.removeprefix("ema_") in _TOLD or key == "OF1"}
        self.display.say(
            f"Epoch {epoch + 1}/{self.settings.epochs}: loss {row['loss']:.3f}, "
            + ", ".join(f"{key} {value:.2f}" for key, value in told.items())
            + f" ({row['images_per_second']:.0f} images/s)"
        )

    def _settle_norms(self) -> None:
        for model in (self.plain, self.ema.model if self.ema else None):
            if model is not None:
                settle_norms(model, self.train_set, self.recipe, self.accelerator, self.display, self.kept)

    def _evaluate(self, epoch: int) -> dict[str, float]:
        """Figures of the weights and of their average; the best so far are saved."""
        found: dict[str, float] = {}
        metric = main_metric(self.plain.config.task, self.plain.unseen)
        for prefix, model in (("", self.plain), ("ema_", self.ema.model if self.ema else None)):
            if model is None:
                continue
            self.parallel.agree_on_buffers(model)
            result, scores = evaluate_model(
                model, self.val_set, self.recipe, self.accelerator, self.evaluation_batches()
            )
            self.parallel.evaluated(model)
            result = self.parallel.agree(result)
            self.broken.note_validation(scores.broken.reasons)
            found |= {prefix + key: value for key, value in result.items()}
            if result[metric] > self.progress.best:
                self.progress.best = result[metric]
                self.progress.best_source = f"{'EMA' if prefix else 'weights'} of epoch {epoch + 1}"
                model.config = model.config.model_copy(update={"metrics": result})
                self.parallel.save(model, self.folder.best)
        return found

    def _unread(self) -> list[int]:
        """This process's share of what filled no step of the first epoch; with repeated augmentation a sample."""
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        return self.order.left_out()[: self.settings.batch_size][rank::world]

    def _minutes(self) -> float:
        """How long ago the last checkpoint was."""
        return (time.monotonic() - self.saved_at) / 60

    def _save_checkpoint(self) -> None:
        self.progress.broken = self.broken.trained.reasons
        self.parallel.agree_on_buffers(self.plain)
        if self.ema is not None:
            self.parallel.agree_on_buffers(self.ema.model)
        self.store.save(self.progress, self._parts())
        self.saved_at, self.time_to_save = time.monotonic(), False

    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"model": self.plain, "optimiser": self.optimiser, "schedule": self.schedule}
        if self.ema is not None:
            parts["ema"] = self.ema.model
        if self.words is not None and self.words.says_random is not None:
            parts["random output"] = self.words.says_random
        if self.accelerator.scaler is not None:
            parts["scaler"] = self.accelerator.scaler
        return parts
