"""The words of a zero-shot model: its labels as vectors, saved with its weights, and further words like them.

Shapes: n labels, m labels that are trained, e text width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mldecoder.config import TextConfig, parse
from mldecoder.heads.neighbours import Neighbours
from mldecoder.text import AnyEncoder, encode_labels
from mldecoder.text import encoder as find_encoder

__all__ = ["AnyText", "LabelWords", "Sentences", "TextScaling", "sentences"]

AnyText = TextConfig | Mapping[str, Any] | AnyEncoder
Sentences = Mapping[str, str | Sequence[str]]


class TextScaling(nn.Module):
    """Vectors measured by how the trained labels differ: ``(v - mean) @ map``.

    Word vectors of one dataset's labels have much in common, and what tells them apart is a small part of their
    length. ``standard`` takes the mean out and gives every number the spread 1; ``whiten`` does so in the directions
    in which the labels vary. ``shrinkage``, as a share of the mean variance, keeps what hardly varies from being blown
    up. Both are fitted on the trained labels alone, and scaled so that a number of theirs has the mean square 1.
    """

    mean: Tensor
    map: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("map", torch.eye(width))

    def fit(self, vectors: Tensor, text: TextConfig) -> "TextScaling":
        """Take mean and map from the vectors ``(m, e)`` of the trained labels."""
        mean = vectors.double().mean(dim=0)
        centred = vectors.double() - mean
        covariance = centred.T @ centred / len(vectors)
        floor = text.shrinkage * covariance.trace() / len(covariance) + 1e-12
        if text.scaling == "standard":
            matrix = torch.diag((covariance.diagonal() + floor).rsqrt())
        else:
            values, directions = torch.linalg.eigh(covariance)
            matrix = directions * (values.clamp(min=0) + floor).rsqrt() @ directions.T
        size = (centred @ matrix).square().mean().sqrt().clamp(min=1e-6)
        self.mean.copy_(mean)
        self.map.copy_(matrix / size)
        return self

    def forward(self, vectors: Tensor) -> Tensor:
        """Scale vectors ``(n, e)``."""
        return (vectors.to(self.mean) - self.mean) @ self.map


@dataclass(frozen=True)
class _Held:
    """An encoder that a model refers to: neither one of its modules, nor copied with it."""

    encoder: AnyEncoder | None

    def __deepcopy__(self, memo: object) -> "_Held":
        return self


class LabelWords(nn.Module):
    """Labels as vectors, and what makes vectors of others; a loaded model has its vectors without the encoder.

    Args:
        config: How labels become vectors.
        vectors: One vector a label ``(n, e)``, scaled.
        scaling: How they were scaled, where they were.
        neighbours: The trained labels, where new ones are scored by those nearest to them.
        encoder: What the config's ``encoder`` names, where the name alone does not bring it back.
    """

    vectors: Tensor

    def __init__(
        self,
        config: TextConfig,
        vectors: Tensor,
        scaling: TextScaling | None = None,
        neighbours: Neighbours | None = None,
        encoder: AnyEncoder | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("vectors", vectors)
        self.scaling, self.neighbours = scaling, neighbours
        self._held = _Held(encoder)

    @classmethod
    def encoded(cls, labels: Sequence[str], text: AnyText | None, unseen: Sequence[str] = ()) -> "LabelWords":
        """Encode labels; ``unseen`` are those that are not going to be trained, and have no part in the scaling.

        Args:
            labels: All labels.
            text: An encoder's name, an encoder, a function from texts to vectors, or the fields of
                :class:`mldecoder.config.TextConfig`; ``None`` takes the defaults.
            unseen: Some of the labels.
        """
        config, encoder = _described(text)
        vectors = _encode(labels, config, encoder)
        trained = [i for i, label in enumerate(labels) if label not in set(unseen)]
        scaling = None
        if config.scaling != "none":
            scaling = TextScaling(vectors.shape[1]).fit(vectors[trained], config)
            vectors = scaling(vectors)
        near = _neighbours(config, vectors[trained].clone())
        return cls(config, vectors, scaling, near, None if isinstance(encoder, str) else encoder)

    @classmethod
    def empty(cls, config: TextConfig, num_labels: int, width: int) -> "LabelWords":
        """Room for saved vectors."""
        scaling = None if config.scaling == "none" else TextScaling(width)
        return cls(config, torch.zeros(num_labels, width), scaling, _neighbours(config, torch.zeros(1, width)))

    @property
    def encoder(self) -> AnyEncoder:
        """What makes vectors of further words; set it where its name does not bring it back."""
        return self._held.encoder or self.config.encoder

    @encoder.setter
    def encoder(self, encoder: AnyEncoder) -> None:
        self._held = _Held(encoder)

    def replaced(self, config: TextConfig, vectors: Tensor) -> "LabelWords":
        """The same for other labels."""
        return LabelWords(config, vectors, self.scaling, self.neighbours, self._held.encoder)

    def ask_neighbours(self, config: TextConfig, trained: Sequence[int]) -> None:
        """Score new labels by the trained ones, which stand in rows ``trained``, as ``config`` says."""
        self.config = config
        self.neighbours = _neighbours(config, self.vectors[list(trained)].clone())

    @property
    def text(self) -> AnyText:
        """What would encode other labels alike."""
        return self.config if self._held.encoder is None else self._held.encoder

    def of(self, labels: Sequence[str], told: Mapping[str, tuple[str, ...]] | None = None) -> Tensor:
        """Vectors of any words, encoded and scaled as the model's own: ``(n, e)``."""
        config = self.config.model_copy(update={"descriptions": {**self.config.descriptions, **(told or {})}})
        vectors = _encode(labels, config, self.encoder)
        if self.scaling is not None:
            vectors = self.scaling(vectors)
        return vectors.to(self.vectors)


def sentences(descriptions: Sentences | None) -> dict[str, tuple[str, ...]]:
    """Descriptions with every label's sentences in a tuple; one sentence may come alone."""
    return {label: (text,) if isinstance(text, str) else tuple(text) for label, text in (descriptions or {}).items()}


def _neighbours(config: TextConfig, anchors: Tensor) -> Neighbours | None:
    if config.neighbours == 0:
        return None
    return Neighbours(anchors, share=config.neighbours, temperature=config.neighbour_temperature)


def _described(text: AnyText | None) -> tuple[TextConfig, AnyEncoder]:
    """What a config says about a way of encoding, and the encoder."""
    if text is None:
        text = TextConfig()
    elif isinstance(text, Mapping):
        text = parse(TextConfig, text, "text")
    if isinstance(text, TextConfig):
        return text, text.encoder
    if isinstance(text, str):
        return TextConfig(encoder=text), text
    found = find_encoder(text)
    return TextConfig(encoder=found.name), found


def _encode(labels: Sequence[str], text: TextConfig, encoder: AnyEncoder) -> Tensor:
    return encode_labels(
        labels,
        encoder,
        templates=text.templates,
        descriptions={label: text.descriptions[label] for label in labels if label in text.descriptions},
        oov=text.oov,
        normalise=text.normalise,
    )
