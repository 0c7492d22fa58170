"""A classifier: backbone, head, labels and preprocessing in one module, and one folder on disk."""

import re
from collections.abc import Mapping, Sequence
from json import JSONDecodeError, loads
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelHubMixin, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mldecoder.backbones import Backbone, create_backbone, wrap_backbone
from mldecoder.config import (
    HEAD_CONFIGS,
    BackboneConfig,
    HeadSection,
    MLDecoderConfig,
    ModelConfig,
    PreprocessingConfig,
    Task,
    TextConfig,
    ZeroShotConfig,
    describe_head,
    parse,
)
from mldecoder.errors import CheckpointError, ConfigError, InputError
from mldecoder.heads import ZeroShotMLDecoder, with_classes
from mldecoder.label_words import AnyText, LabelWords, Sentences, sentences
from mldecoder.labelled import Labelled

if TYPE_CHECKING:
    from mldecoder import Explanation, Picture, PictureOrMany, Prediction

__all__ = ["Classifier", "Head", "create_model", "load", "replace_head"]

Head = str | Mapping[str, Any] | HeadSection | nn.Module
_WEIGHTS, _CONFIG, _CARD = "model.safetensors", "config.json", "README.md"


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
        features = self.backbone(images)
        logits: Tensor
        if self.words is None:
            logits = self.head(features)
        else:
            logits = self.head(features, self.words.vectors if text_vectors is None else text_vectors)
        return logits

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
        names = _names(labels)
        section = self.config.head if head is None else _head_config(head)
        if head is None and isinstance(section, MLDecoderConfig):  # numbers that belong to the old labels
            section = section.model_copy(update={"num_queries": None, "groups": "random", "group_size": None})
        if text is None and self.words is not None and isinstance(section, ZeroShotConfig):
            text = self.words.text
            section = section.model_copy(update={"text_width": None, "num_groups": None})
        reference = next(self.parameters())
        module, section, words = _build(section, names, self.backbone.num_features, text)
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
        names = _names(labels)
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
        """Write the model folder; a file is complete or not there."""
        if self._foreign:
            _check_rebuildable(self)
        with TemporaryDirectory(dir=save_directory, prefix=".writing-") as name:
            parts = Path(name)
            state = {key: value.detach().contiguous() for key, value in self.state_dict().items()}
            save_file(state, parts / _WEIGHTS, metadata={"format": "pt"})
            (parts / _CONFIG).write_text(self.config.model_dump_json(indent=2) + "\n", encoding="utf-8")
            (parts / _CARD).write_text(_model_card(self), encoding="utf-8")
            for file in (_WEIGHTS, _CONFIG, _CARD):
                (parts / file).replace(save_directory / file)

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
            raise CheckpointError(f"{model_id} has no {_CONFIG}. Pass a folder that `save_pretrained` wrote.")
        folder = Path(model_id)
        if folder.is_dir():
            file = str(folder / _WEIGHTS)
        else:
            file = hf_hub_download(
                model_id,
                _WEIGHTS,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
            )
        return _assemble(parse(ModelConfig, config, f"{model_id}/{_CONFIG}"), file, map_location)


def create_model(
    backbone: str,
    num_classes: int | None = None,
    *,
    labels: Sequence[str] | None = None,
    head: Head = "ml-decoder",
    text: AnyText | None = None,
    task: Task = "multi-label",
    pretrained: bool = False,
    img_size: int | tuple[int, int] | None = None,
    in_chans: int = 3,
    keep_prefix_tokens: bool = False,
    backbone_options: Mapping[str, Any] | None = None,
) -> Classifier:
    """Build a backbone with an ML-Decoder head.

    Args:
        backbone: A timm name; ``mld.list_backbones()`` shows them. ``torchvision/resnet18`` and
            ``transformers/facebook/dinov2-small`` work too.
        num_classes: How many labels the model scores; not needed where ``labels`` are given.
        labels: The labels' names.
        head: ``"ml-decoder"``, ``"gap"``, ``"transformer-decoder"``, ``"zero-shot"``, or a dict with ``kind`` and the
            head's options.
        text: For a zero-shot head, how labels become vectors: the name of a text encoder, an encoder, a function, or
            the fields of ``TextConfig``; ``glove-50`` by default.
        task: ``"multi-label"``, or ``"single-label"`` where exactly one label is right.
        pretrained: Download the backbone's weights.
        img_size: Side of the pictures, or (height, width); ``None`` takes the backbone's own.
        in_chans: Channels of the pictures.
        keep_prefix_tokens: Let the head see a ViT's class and register tokens too.
        backbone_options: Further arguments for the backbone's constructor.

    Example:
        >>> model = create_model("test_resnet", num_classes=80, head={"kind": "ml-decoder", "num_queries": 20})
        >>> model(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 80])
    """
    names = _names(labels if labels is not None else num_classes)
    if num_classes is not None and num_classes != len(names):
        raise ConfigError(
            f"num_classes={num_classes} does not fit the {len(names)} labels given. Leave one of them out."
        )
    size = (img_size, img_size) if isinstance(img_size, int) else img_size
    body = create_backbone(
        backbone,
        pretrained=pretrained,
        img_size=size,
        in_chans=in_chans,
        keep_prefix_tokens=keep_prefix_tokens,
        options=backbone_options,
    )
    described = BackboneConfig(
        name=body.name,
        img_size=size,
        in_chans=in_chans,
        keep_prefix_tokens=keep_prefix_tokens,
        options=dict(body.options),
    )
    return join(body, described, head, names, text=text, task=task)


def replace_head(
    model: nn.Module,
    num_classes: int | None = None,
    *,
    labels: Sequence[str] | None = None,
    head: Head = "ml-decoder",
    text: AnyText | None = None,
    task: Task = "multi-label",
) -> Classifier:
    """Put an ML-Decoder head on a timm, torchvision or transformers model, and keep its backbone's weights.

    Example:
        >>> import timm
        >>> model = replace_head(timm.create_model("test_resnet"), num_classes=80)
        >>> model(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 80])
    """
    body = wrap_backbone(model)
    names = _names(labels if labels is not None else num_classes)
    size = body.preprocessing.size
    described = BackboneConfig(name=body.name, img_size=size, in_chans=body.in_chans, options=dict(body.options))
    classifier = join(body, described, head, names, text=text, task=task)
    classifier._foreign = True
    return classifier


def join(
    backbone: Backbone,
    described: BackboneConfig,
    head: Head,
    labels: tuple[str, ...],
    *,
    text: AnyText | None = None,
    unseen: Sequence[str] = (),
    task: Task = "multi-label",
    preprocessing: PreprocessingConfig | None = None,
) -> Classifier:
    """Join a backbone with a head, given as a module or described, into a classifier.

    ``unseen`` are those of the labels that are not going to be trained.
    """
    module, section, words = _build(head, labels, backbone.num_features, text, unseen)
    preprocessing = preprocessing or PreprocessingConfig.model_validate(vars(backbone.preprocessing))
    config = ModelConfig.model_validate(
        {
            "backbone": described,
            "head": section,
            "labels": labels,
            "unseen": tuple(unseen),
            "text": None if words is None else words.config,
            "task": task,
            "preprocessing": preprocessing,
        }
    )
    return Classifier(backbone, module, config, words)


def _build(
    head: Head, labels: tuple[str, ...], num_features: int, text: AnyText | None, unseen: Sequence[str] = ()
) -> tuple[nn.Module, HeadSection, LabelWords | None]:
    """A head, its config and, where it asks by words, the words."""
    section = describe_head(head) if isinstance(head, nn.Module) else _head_config(head)
    words = None
    if isinstance(section, ZeroShotConfig):
        words = LabelWords.encoded(labels, text, unseen)
        width = words.vectors.shape[1]
        if section.text_width not in (None, width):
            raise ConfigError(
                f"The head takes text vectors of {section.text_width} numbers, {words.config.encoder} gives {width}. "
                f"Leave head.text_width out, or name another text.encoder."
            )
        section = section.model_copy(update={"text_width": width})
    elif text is not None:
        raise ConfigError('text is for the zero-shot head. Pass head="zero-shot" with it.')
    module = head if isinstance(head, nn.Module) else section.build(len(labels), num_features)
    return module, section, words


def load(path: str | Path, *, map_location: str = "cpu") -> Classifier:
    """Load a model from a folder, a run folder, or the hub.

    Args:
        path: A folder that ``save_pretrained`` wrote, a run of ``mldecoder train`` (its best weights), or
            ``name/model`` on the Hugging Face hub.
        map_location: The device to load to.
    """
    folder = Path(path)
    for candidate in (folder, folder / "best", folder / "last"):
        if (candidate / _CONFIG).is_file() and (candidate / _WEIGHTS).is_file():
            return _assemble(_read_config(candidate / _CONFIG), candidate / _WEIGHTS, map_location)
    if folder.exists():
        raise CheckpointError(f"{path} is not a model: there is no {_CONFIG} with {_WEIGHTS} in it.")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(path)):
        raise CheckpointError(
            f"There is no model at {path}. Pass a model folder, a run folder or a hub id (name/model)."
        )
    try:
        model = Classifier.from_pretrained(str(path), map_location=map_location)
    except (HfHubHTTPError, EntryNotFoundError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"There is no folder {path}, and the hub does not give it: {reason}") from error
    return model


def _check_rebuildable(model: Classifier) -> None:
    """Refuse to save a model whose config would not bring its backbone back."""
    described = model.config.backbone
    again = create_backbone(
        described.name, img_size=described.img_size, in_chans=described.in_chans, options=described.options
    ).state_dict()
    own = model.backbone.state_dict()
    if {key: value.shape for key, value in own.items()} != {key: value.shape for key, value in again.items()}:
        raise CheckpointError(
            f"This {described.name} was built with options that only its builder knows, so a folder could not bring it "
            f"back. Build it with mld.create_model(..., backbone_options={{...}}), or save its state_dict()."
        )


def _assemble(config: ModelConfig, weights: str | Path, map_location: str) -> Classifier:
    described = config.backbone
    backbone = create_backbone(
        described.name,
        img_size=described.img_size,
        in_chans=described.in_chans,
        keep_prefix_tokens=described.keep_prefix_tokens,
        options=described.options,
    )
    head, words = config.head.build(len(config.labels), backbone.num_features), None
    if isinstance(head, ZeroShotMLDecoder):  # the file brings the vectors, so that no text encoder is needed
        words = LabelWords.empty(config.text or TextConfig(), len(config.labels), head.text_width)
    model = Classifier(backbone, head, config, words)
    try:
        state = load_file(weights, device=map_location)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{weights} cannot be read: {error}") from error
    floats = {value.dtype for value in state.values() if value.is_floating_point()}
    if len(floats) == 1:
        model.to(floats.pop())  # a model saved in half precision comes back in it
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise CheckpointError(f"{weights} does not fit its {_CONFIG}: {str(error).splitlines()[-1].strip()}") from error
    return model.to(map_location).eval()


def _read_config(path: Path) -> ModelConfig:
    try:
        data = loads(path.read_text(encoding="utf-8"))
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}.") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != 1:
        raise CheckpointError(
            f"{path} has schema version {version!r}; this mldecoder reads version 1. Update mldecoder."
        )
    return parse(ModelConfig, data, str(path))


def _names(labels: Sequence[str] | int | None) -> tuple[str, ...]:
    if labels is None:
        raise ConfigError("Say what to score: num_classes=80, or labels=[...].")
    if isinstance(labels, int):
        if labels < 1:
            raise ConfigError(f"num_classes must be at least 1, got {labels}.")
        return tuple(f"class {i}" for i in range(labels))
    names = tuple(labels)
    if not names:
        raise ConfigError("labels must name at least one class, got none.")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ConfigError(f"labels must differ from each other, got {twice!r} twice.")
    return names


def _head_config(head: Head) -> HeadSection:
    if isinstance(head, HeadSection):
        return head
    data = {"kind": head} if isinstance(head, str) else dict(head) if isinstance(head, Mapping) else {}
    kind = data.get("kind", "ml-decoder")
    if kind not in HEAD_CONFIGS:
        raise ConfigError(f"head must be one of {', '.join(HEAD_CONFIGS)}, got {kind!r}.")
    return parse(HEAD_CONFIGS[kind], data, "head")


def _model_card(model: Classifier) -> str:
    config = model.config
    some = ", ".join(config.labels[:20]) + (", ..." if len(config.labels) > 20 else "")
    metrics = "\n".join(f"- {name}: {value:.2f}" for name, value in config.metrics.items())
    words = "" if config.text is None else f"\nAny other words can be asked for; their vectors: {config.text.encoder}\n"
    return f"""---
library_name: mldecoder
tags: [ml-decoder, image-classification]
---
# {config.backbone.name} with a {config.head.kind} head

{len(config.labels)} labels ({config.task}): {some}
{words}
```python
import mldecoder as mld

model = mld.load("this folder")
```
{metrics}
"""
