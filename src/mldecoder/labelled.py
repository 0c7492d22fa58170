"""What a classifier knows about its labels, and what a zero-shot one makes of words: vectors, thresholds, new labels.

Shapes: n labels, e text width.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mldecoder.backbones import Backbone
from mldecoder.config import ModelConfig, TextConfig, parse
from mldecoder.errors import ConfigError
from mldecoder.heads import ZeroShotMLDecoder
from mldecoder.heads.zero_shot_labels import neighbour_thresholds, vector_from_pictures
from mldecoder.label_words import LabelWords, Sentences, sentences

__all__ = ["Labelled"]


class Labelled(nn.Module):
    """The part of :class:`mldecoder.Classifier` that is about labels."""

    backbone: Backbone
    head: nn.Module
    config: ModelConfig
    words: LabelWords | None

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each logit."""
        return self.config.labels

    @property
    def unseen(self) -> tuple[str, ...]:
        """Those of the labels that were never trained."""
        return self.config.unseen

    @property
    def seen(self) -> tuple[str, ...]:
        """Those of the labels that were trained."""
        unseen = set(self.config.unseen)
        return tuple(label for label in self.labels if label not in unseen)

    @property
    def zero_shot(self) -> bool:
        """Whether labels are words, so that any can be asked for."""
        return self.words is not None

    def text_vectors_for(self, labels: Sequence[str], *, descriptions: Sentences | None = None) -> Tensor:
        """The vectors that :meth:`forward` takes for any words: ``(n, e)``, in their order.

        Labels of the model have theirs already; only other words need the text encoder.

        Args:
            labels: Any words.
            descriptions: Sentences that stand for a label instead of its name.
        """
        words = self._words()
        told = sentences(descriptions)
        place = {label: i for i, label in enumerate(self.labels) if label not in told}
        rows = {label: words.vectors[place[label]] for label in labels if label in place}
        new = list(dict.fromkeys(label for label in labels if label not in place))
        if new:
            rows |= dict(zip(new, words.of(new, told), strict=True))
        return torch.stack([rows[label] for label in labels]) if len(labels) else words.vectors[:0]

    def ask_neighbours(self, share: float = 0.7, temperature: float = 0.02) -> None:
        """Let labels that were never trained be scored by the trained labels whose words are nearest to theirs.

        Nothing is trained; it is saved with the model. ``share=0`` ends it. Trained labels keep their scores.

        Args:
            share: How much of a new label's score is its neighbours'.
            temperature: Small values let the nearest ones alone decide.
        """
        words = self._words()
        wish = {"neighbours": share, "neighbour_temperature": temperature}
        text = parse(TextConfig, words.config.model_dump() | wish, "text")
        words.ask_neighbours(text, self._trained())
        self._update(text=text)

    def with_neighbours(self, logits: Tensor, features: Tensor, text_vectors: Tensor) -> Tensor:
        """Logits ``(b, n)`` of a zero-shot head; new labels' are mixed with their neighbours' where that is wished."""
        near = self._words().neighbours
        if near is None or self.training:
            return logits
        mixed: Tensor = near(logits, text_vectors, self.head(features, near.anchors))
        return mixed

    def thresholds_for(self, labels: Sequence[str]) -> Tensor:
        """The probability from which each label is said to be there: ``(n,)``; 0.5 where nothing was calibrated.

        A word that a zero-shot model does not have gets a mean of its nearest trained labels' thresholds.
        """
        own = self.config.thresholds
        place = {label: i for i, label in enumerate(self.labels)}
        new = [label for label in labels if label not in place]
        if new and self.words is None:
            raise ConfigError(f"The model has no label {new[0]!r}. Its labels are in `model.labels`.")
        if not isinstance(own, tuple):
            value = self.config.global_threshold if own is None else own
            return torch.full((len(labels),), 0.5 if value is None else value)
        found = {label: own[i] for label, i in place.items()}
        if new:
            found |= dict(zip(new, self._neighbours(own, self.text_vectors_for(new)), strict=True))
        return torch.tensor([found[label] for label in labels])

    def _words(self) -> LabelWords:
        if self.words is None:
            raise ConfigError(f"Any words can be scored by zero-shot models, this one is {self.config.head.kind}.")
        return self.words

    def _set_words(
        self, names: tuple[str, ...], told: Mapping[str, tuple[str, ...]], pictures: Mapping[str, Tensor]
    ) -> None:
        """Other words for a zero-shot model; nothing of it is trained."""
        strange = [label for label in (*told, *pictures) if label not in set(names)]
        if strange:
            raise ConfigError(f"Sentences and pictures must be of labels given, got {strange[0]!r}. Add it to them.")
        words = self._words()
        shown = {label: self._vector_of(images) for label, images in pictures.items()}
        named = [label for label in names if label not in shown]
        rows = dict(zip(named, self.text_vectors_for(named, descriptions=told), strict=True)) | shown
        vectors = torch.stack([rows[label] for label in names])
        thresholds = self.config.thresholds
        if isinstance(thresholds, tuple):
            known = dict(zip(self.labels, thresholds, strict=True))
            near = self._neighbours(thresholds, vectors)
            thresholds = tuple(known.get(label, other) for label, other in zip(names, near, strict=True))
        texts = {label: texts for label, texts in {**words.config.descriptions, **told}.items() if label in set(named)}
        text, seen = words.config.model_copy(update={"descriptions": texts}), set(self.seen)
        self.words = words.replaced(text, vectors)
        unseen = tuple(label for label in names if label not in seen)
        self._update(labels=names, unseen=unseen, text=text, thresholds=thresholds, metrics={})

    def _vector_of(self, images: Tensor) -> Tensor:
        """The vector of a label that is known by pictures alone."""
        words, head = self._words(), self.head
        if not isinstance(head, ZeroShotMLDecoder):
            raise ConfigError("A label from pictures is for zero-shot models.")
        was_training = self.training
        self.eval()
        with torch.no_grad():
            vector = vector_from_pictures(head, self.backbone(images.to(words.vectors)), words.vectors[self._trained()])
        self.train(was_training)
        return vector

    def _neighbours(self, own: tuple[float, ...], vectors: Tensor) -> list[float]:
        """Thresholds of new words, from those of the trained labels nearest to them."""
        rows, words = self._trained(), self._words()
        return [*map(float, neighbour_thresholds(vectors.cpu(), words.vectors.cpu()[rows], torch.tensor(own)[rows]))]

    def _trained(self) -> list[int]:
        """Places of the labels that were trained, of all where none was."""
        seen = set(self.seen) or set(self.labels)
        return [i for i, label in enumerate(self.labels) if label in seen]

    def _update(self, **changes: object) -> None:
        self.config = self.config.model_copy(update=changes)
