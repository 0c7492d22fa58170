"""From pictures to tags: decode ahead in threads, score in batches, keep what reaches its threshold.

Shapes: b batch, k labels asked for, h and w height and width.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mldecoder.data.transforms import evaluation_transform, normalise
from mldecoder.errors import ConfigError, DataError, did_you_mean
from mldecoder.heads import ZeroShotMLDecoder
from mldecoder.model import Classifier
from mldecoder.predict.ahead import default_workers, in_order, quiet_pillow
from mldecoder.predict.inputs import PictureOrMany, Source, sources
from mldecoder.predict.prediction import Prediction, Tag

__all__ = ["Predictor", "choose_labels", "evaluating"]


class Predictor:
    """A model ready to tag pictures, one or millions.

    Args:
        model: A trained model; its config says how pictures are prepared.
        labels: Which labels to score: some of the model's own, or any words where the model is zero-shot. ``None``
            takes the model's own.
        top_k: At most this many tags a picture; ``None`` means no limit, with ``single-label`` models 1.
        threshold: A label is given from this score on. ``None`` or ``"auto"`` takes the thresholds that
            ``mldecoder calibrate`` stored, or 0.5; ``single-label`` models then need none.
        batch_size: Pictures scored together.
        workers: Threads that decode; ``None`` chooses.

    Example:
        >>> model = mld.create_model("test_resnet", labels=["cat", "dog"])
        >>> [prediction] = Predictor(model, threshold=0.0)(np.zeros((64, 64, 3), np.uint8))
        >>> sorted(tag.label for tag in prediction.tags)
        ['cat', 'dog']
    """

    def __init__(
        self,
        model: Classifier,
        *,
        labels: Sequence[str] | None = None,
        top_k: int | None = None,
        threshold: float | Literal["auto"] | None = None,
        batch_size: int = 32,
        workers: int | None = None,
    ) -> None:
        for name, value in {"top_k": top_k, "batch_size": batch_size, "workers": workers}.items():
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}.")
        self.model = model
        self.single = model.config.task == "single-label"
        self.labels, self.columns, self.text_vectors = choose_labels(model, labels)
        self.top_k = top_k or (1 if self.single else len(self.labels))
        self.batch_size = batch_size
        self.workers = workers or default_workers()
        self.thresholds = self._thresholds(None if threshold == "auto" else threshold)
        self.transform = evaluation_transform(model.config.preprocessing)

    def __call__(self, images: PictureOrMany) -> list[Prediction]:
        """Tag one or many pictures: one result a picture, in order.

        Raises:
            DataError: with the name of the first picture that cannot be read.
        """
        made = []
        with quiet_pillow():
            for prediction in self.stream(sources(images)):
                if prediction.error is not None:
                    raise DataError(f"{prediction.name}: {prediction.error}. Mend it or leave it out.")
                made.append(prediction)
        return made

    def stream(self, pictures: Iterable[Source]) -> Iterator[Prediction]:
        """Tag any number of pictures in constant memory; one that cannot be read comes with its ``error``."""
        for batch in self.batches(pictures):
            yield from batch

    def batches(self, pictures: Iterable[Source]) -> Iterator[list[Prediction]]:
        """The same, a batch at a time."""
        waiting: list[tuple[Source, Tensor | str]] = []
        for item in in_order(self._try, pictures, workers=self.workers, ahead=2 * self.batch_size):
            waiting.append(item)
            if len(waiting) == self.batch_size:
                yield self._tagged(waiting)
                waiting = []
        if waiting:
            yield self._tagged(waiting)

    def prepare(self, source: Source) -> Tensor:
        """Read a picture and bring it to the model's size: uint8 ``(3, h, w)``, as evaluation does it."""
        return self.transform(source.read())

    def normalised(self, images: Tensor) -> Tensor:
        """Prepared pictures as the model takes them, on its device."""
        reference = next(self.model.parameters())
        return normalise(images.to(reference.device), self.model.config.preprocessing).to(reference.dtype)

    def probabilities(self, images: Tensor) -> Tensor:
        """Scores of prepared pictures: uint8 ``(b, 3, h, w)`` to float64 ``(b, k)`` on the CPU."""
        with torch.inference_mode(), evaluating(self.model):
            images = self.normalised(images)
            logits = self.model(images) if self.text_vectors is None else self.model(images, self.text_vectors)
            return self.from_logits(logits)

    def from_logits(self, logits: Tensor) -> Tensor:
        """Logits of the model to calibrated scores of the labels asked for."""
        scores = self.model.probabilities(logits.detach().cpu())
        return scores if self.columns is None else scores[:, self.columns]

    def tag(self, name: str, scores: NDArray[np.float64]) -> Prediction:
        """The labels of one picture that reach their threshold, best first."""
        there = np.flatnonzero(scores >= self.thresholds)
        chosen = there[np.argsort(-scores[there], kind="stable")][: self.top_k]
        tags = tuple(Tag(self.labels[i], float(scores[i])) for i in chosen)
        return Prediction(name, tags, self.labels, scores, self.thresholds)

    def timed(self, source: Source) -> tuple[Prediction, dict[str, float]]:
        """Tag one picture and say how many seconds each step took: decode, backbone, head, output."""
        marks = [time.perf_counter()]

        def mark() -> None:
            if next(self.model.parameters()).device.type == "cuda":
                torch.cuda.synchronize()
            marks.append(time.perf_counter())

        with torch.inference_mode(), evaluating(self.model):
            picture = self.prepare(source)
            mark()
            features = self.model.backbone(self.normalised(picture.unsqueeze(0)))
            mark()
            logits = self.model.score(features, self.text_vectors)
            mark()
            prediction = self.tag(source.name, self.from_logits(logits)[0].numpy())
            mark()
        steps = ("decode", "backbone", "head", "output")
        return prediction, {step: marks[i + 1] - marks[i] for i, step in enumerate(steps)}

    def _try(self, source: Source) -> tuple[Source, Tensor | str]:
        try:
            return source, self.prepare(source)
        except DataError as error:
            return source, str(error).removesuffix(".")

    def _tagged(self, items: list[tuple[Source, Tensor | str]]) -> list[Prediction]:
        images = [picture for _, picture in items if isinstance(picture, Tensor)]
        scores = iter(self.probabilities(torch.stack(images)).numpy() if images else ())
        nothing = np.empty(0)
        return [
            Prediction(source.name, (), self.labels, nothing, self.thresholds, picture)
            if isinstance(picture, str)
            else self.tag(source.name, next(scores))
            for source, picture in items
        ]

    def _thresholds(self, wish: float | None) -> NDArray[np.float64]:
        config, k = self.model.config, len(self.labels)
        if wish is not None:
            if not 0 <= wish <= 1:
                raise ConfigError(f'threshold must be between 0 and 1, or "auto", got {wish}.')
            return np.full(k, wish, dtype=np.float64)
        if self.single:
            return np.zeros(k)
        stored = config.thresholds
        if not isinstance(stored, tuple):
            one = stored if stored is not None else config.global_threshold
            return np.full(k, 0.5 if one is None else one, dtype=np.float64)
        own = dict(zip(self.model.labels, stored, strict=True))
        new = [label for label in self.labels if label not in own]  # words for a zero-shot model
        own |= dict(zip(new, self.model.thresholds_for(new).tolist(), strict=True)) if new else {}
        return np.array([own[label] for label in self.labels], dtype=np.float64)


def choose_labels(
    model: Classifier, labels: Sequence[str] | None
) -> tuple[tuple[str, ...], Tensor | None, Tensor | None]:
    """The labels to score, their columns among the model's logits, and their text vectors.

    Columns are ``None`` where all logits are wanted in their order; text vectors are there only for a zero-shot
    model that is given words.
    """
    if labels is None:
        return model.labels, None, None
    names = tuple(labels)
    if isinstance(labels, str) or not names or len(set(names)) < len(names):
        raise ConfigError(f"labels must be a list of different names, got {labels!r}.")
    if isinstance(model.head, ZeroShotMLDecoder):
        return names, None, model.text_vectors_for(names)
    place = {label: i for i, label in enumerate(model.labels)}
    for name in names:
        if name not in place:
            hint = did_you_mean(name, place, f"It has {len(place)}, such as {model.labels[0]!r}.")
            raise ConfigError(f"The model has no label {name!r}. {hint}")
    return names, torch.tensor([place[name] for name in names]), None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode for a while."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()
