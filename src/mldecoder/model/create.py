"""From a name, a model or a folder to a classifier."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError
from torch import nn

from mldecoder.backbones import Backbone, create_backbone, wrap_backbone
from mldecoder.config import BackboneConfig, ModelConfig, PreprocessingConfig, Task
from mldecoder.errors import CheckpointError, ConfigError
from mldecoder.label_words import AnyText
from mldecoder.model.classifier import Classifier
from mldecoder.model.folder import CONFIG, WEIGHTS, read_config
from mldecoder.model.parts import Head, build_head, names_of

__all__ = ["create_model", "join", "load", "replace_head"]


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
    names = names_of(labels if labels is not None else num_classes)
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
    names = names_of(labels if labels is not None else num_classes)
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
    module, section, words = build_head(head, labels, backbone.num_features, text, unseen)
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


def load(path: str | Path, *, map_location: str = "cpu") -> Classifier:
    """Load a model from a folder, a run folder, or the hub.

    Args:
        path: A folder that ``save_pretrained`` wrote, a run of ``mldecoder train`` (its best weights), or
            ``name/model`` on the Hugging Face hub.
        map_location: The device to load to.
    """
    folder = Path(path)
    for candidate in (folder, folder / "best", folder / "last"):
        if (candidate / CONFIG).is_file() and (candidate / WEIGHTS).is_file():
            return Classifier.assembled(read_config(candidate / CONFIG), candidate / WEIGHTS, map_location)
    if folder.exists():
        raise CheckpointError(f"{path} is not a model: there is no {CONFIG} with {WEIGHTS} in it.")
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
