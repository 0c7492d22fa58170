"""A classifier: backbone, head, labels and preprocessing in one module, and one folder on disk."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelHubMixin, hf_hub_download
from torch import Tensor, nn

from mldecoder.backbones import Backbone
from mldecoder.config import MLDecoderConfig, ModelConfig, ZeroShotConfig, describe_head, parse
from mldecoder.errors import CheckpointError, ConfigError, InputError
from mldecoder.heads import with_classes
from mldecoder.label_words import AnyText, LabelWords, Sentences, sentences
from mldecoder.labelled import Labelled
from mldecoder.model.folder import CONFIG, WEIGHTS, check_rebuildable, fill, rebuild, write
from mldecoder.model.parts import Head, build_head, head_config, names_of

if TYPE_CHECKING:
    from mldecoder import Explanation, Picture, PictureOrMany, Prediction

__all__ = ["Classifier"]


class Classifier(Labelled, ModelHubMixin, library_name="mldecoder", tags=["ml-decoder", "image-classification"]):
    """A backbone and a head that know their labels; ``forward`` takes pictures and gives logits.

    Args:
        backbone: Turns pictures into features.
        head: Turns features into one logit a label.
        config: Everything else, and what is written to ``config.json``.
        words: For a zero-shot head, the labels as vectors.

    Example:
        >>> model = create_model("test_resnet", labels=["cat", "dog"])
        >>> model(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 2])
    """

    def __init__(
        self, backbone: Backbone, head: nn.Module, config: ModelConfig, words: LabelWords | None = None
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.config = config
        self.words = words
        self._foreign = False  # whether the backbone was built by somebody else

    @property
    def num_classes(self) -> int:
        """How many labels the model scores."""
        return len(self.config.labels)

    def forward(self, images: Tensor, text_vectors: Tensor | None = None) -> Tensor:
        """Pictures ``(b, 3, h, w)``, preprocessed, to logits ``(b, n)``.

        A zero-shot model scores its own labels, or those of ``text_vectors`` ``(n, e)``, which
        :meth:`text_vectors_for` makes of any words.
        """
        if self.words is None and text_vectors is not None:
            raise InputError(f"text_vectors are for zero-shot models, this one is {self.config.head.kind}.")
        return self.score(self.backbone(images), text_vectors)

    def score(self, features: Tensor, text_vectors: Tensor | None = None) -> Tensor:
        """What :meth:`forward` does with the backbone's features."""
        logits: Tensor
        if self.words is None:
            logits = self.head(features)
            return logits
        vectors = self.words.vectors if text_vectors is None else text_vectors
        logits = self.head(features, vectors)
        return self.with_neighbours(logits, features, vectors)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Logits ``(b, n)`` to calibrated scores, in float64: sigmoid, or softmax where exactly one label is right."""
        config = self.config
        values = logits.double() / (config.temperature or 1.0) + (config.bias or 0.0)
        return values.softmax(dim=1) if config.task == "single-label" else values.sigmoid()

    def predict(
        self,
        images: "PictureOrMany",
        labels: Sequence[str] | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
        batch_size: int = 32,
    ) -> "list[Prediction]":
        """Tag pictures: paths, folders, bytes, PIL pictures, arrays or tensors, one or many; one result a picture.

        Args:
            images: What to tag; see :func:`mldecoder.predict.inputs.sources`.
            labels: Some of the model's labels, or any words where the model is zero-shot.
            top_k: At most this many tags a picture.
            threshold: A label is given from this score on; ``None`` takes the calibrated ones, or 0.5.
            batch_size: Pictures scored together.
        """
        from mldecoder import Predictor  # the package knows where it lives; this layer does not

        return Predictor(self, labels=labels, top_k=top_k, threshold=threshold, batch_size=batch_size)(images)

    def explain(self, image: "Picture", labels: Sequence[str] | None = None) -> "Explanation":
        """Where the model looked in one picture for each label: for the predicted ones by default."""
        from mldecoder import Explainer

        return Explainer(self, labels=labels)(image)

    def reset_classifier(
        self, labels: Sequence[str] | int, *, head: Head | None = None, text: AnyText | None = None
    ) -> None:
        """Put an untrained head for other labels on the backbone; the old head's kind and sizes stay by default."""
        names = names_of(labels)
        section = self.config.head if head is None else head_config(head)
        if head is None and isinstance(section, MLDecoderConfig):  # numbers that belong to the old labels
            section = section.model_copy(update={"num_queries": None, "groups": "random", "group_size": None})
        if text is None and self.words is not None and isinstance(section, ZeroShotConfig):
            text = self.words.text
            section = section.model_copy(update={"text_width": None, "num_groups": None})
        reference = next(self.parameters())
        module, section, words = build_head(section, names, self.backbone.num_features, text)
        self.head = module.to(reference.device, reference.dtype)
        self.words = None if words is None else words.to(reference.device, reference.dtype)
        forgotten = {"thresholds": None, "global_threshold": None, "temperature": None, "bias": None}
        text_config = None if words is None else words.config
        self._update(labels=names, head=section, metrics={}, text=text_config, unseen=(), **forgotten)

    def set_labels(
        self,
        labels: Sequence[str],
        *,
        descriptions: Sentences | None = None,
        pictures: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Score other labels: those the model has keep their weights, the others start untrained.

        A zero-shot model needs no training for a new label: it asks by its name, by a sentence, or by pictures.

        Args:
            labels: The labels to score from now on.
            descriptions: For a zero-shot model, sentences that stand for a label instead of its name.
            pictures: For a zero-shot model, preprocessed pictures ``(p, 3, h, w)`` that have the label; see
                :func:`mldecoder.heads.zero_shot_labels.vector_from_pictures`.
        """
        names = names_of(labels)
        if self.words is not None:
            self._set_words(names, sentences(descriptions), pictures or {})
            return
        if descriptions or pictures:
            raise ConfigError(
                f"Labels by sentences or pictures are for zero-shot models, this one is {self.config.head.kind}."
            )
        place = {label: i for i, label in enumerate(self.labels)}
        source = [place.get(label) for label in names]
        self.head = with_classes(self.head, source).train(self.head.training)
        thresholds = self.config.thresholds
        if isinstance(thresholds, tuple):
            new = 0.5 if self.config.global_threshold is None else self.config.global_threshold
            thresholds = tuple(new if i is None else thresholds[i] for i in source)
        self._update(labels=names, head=describe_head(self.head), thresholds=thresholds, metrics={})

    def add_labels(
        self,
        labels: Sequence[str],
        *,
        descriptions: Sentences | None = None,
        pictures: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Add labels behind the others, untrained or, in a zero-shot model, by word, sentence or pictures.

        What the model knows stays; :meth:`set_labels` explains the arguments.
        """
        known = sorted(set(labels) & set(self.labels))
        if known:
            raise ConfigError(f"The model has the label {known[0]!r} already. Add only new ones.")
        self.set_labels([*self.labels, *labels], descriptions=descriptions, pictures=pictures)

    def remove_labels(self, labels: Sequence[str]) -> None:
        """Take labels out; the others keep their logits."""
        unknown = sorted(set(labels) - set(self.labels))
        if unknown:
            raise ConfigError(f"The model has no label {unknown[0]!r}. Its labels are in `model.labels`.")
        self.set_labels([label for label in self.labels if label not in set(labels)])

    def _save_pretrained(self, save_directory: Path) -> None:
        if self._foreign:
            check_rebuildable(self.backbone, self.config)
        write(self, self.config, save_directory)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        config: Mapping[str, Any] | None = None,
        map_location: str = "cpu",
        **_: object,  # the mixin repeats the config's keys here
    ) -> "Classifier":
        if config is None:
            raise CheckpointError(f"{model_id} has no {CONFIG}. Pass a folder that `save_pretrained` wrote.")
        folder = Path(model_id)
        if folder.is_dir():
            file = str(folder / WEIGHTS)
        else:
            file = hf_hub_download(
                model_id,
                WEIGHTS,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
            )
        return cls.assembled(parse(ModelConfig, config, f"{model_id}/{CONFIG}"), file, map_location)

    @classmethod
    def assembled(cls, config: ModelConfig, weights: str | Path, map_location: str) -> "Classifier":
        """The model of a config with the weights of a file, ready to be asked."""
        backbone, head, words = rebuild(config)
        return fill(cls(backbone, head, config, words), weights, map_location)
