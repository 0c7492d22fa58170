"""The model that a recipe describes, with its first weights."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mldecoder.backbones import Backbone, create_backbone
from mldecoder.backbones.weights import load_weights
from mldecoder.config import BackboneConfig, MLDecoderConfig, PreprocessingConfig, Task, ZeroShotConfig
from mldecoder.convert import read_checkpoint, state_of
from mldecoder.errors import CheckpointError
from mldecoder.heads.split_training import split_layers
from mldecoder.model import Classifier, Head, join, load
from mldecoder.model.folder import CONFIG, read_config
from mldecoder.model.split_folder import build_split_head, load_split
from mldecoder.recipes import Recipe
from mldecoder.training.console import Display

__all__ = ["build_model"]


def build_model(
    recipe: Recipe, labels: tuple[str, ...], task: Task, display: Display, unseen: tuple[str, ...] = ()
) -> Classifier:
    """Backbone and head as the recipe wants them; says where the first weights come from.

    ``unseen`` are those of the labels that will not be trained.
    """
    wish, size = recipe.backbone, recipe.image.size
    described = BackboneConfig(**wish.model_dump(include=set(BackboneConfig.model_fields)))
    if described.img_size is None and size != 224:
        described = described.model_copy(update={"img_size": (size, size)})
    backbone = _backbone(described, recipe, display)
    statistics = backbone.preprocessing
    unit = recipe.image.statistics == "unit"
    preprocessing = PreprocessingConfig.model_validate(
        recipe.image.model_dump(include={"resize", "crop_pct", "interpolation"})
        | {"size": (size, size)}
        | ({} if unit else {"mean": statistics.mean, "std": statistics.std})
    )
    head = recipe.head
    by_words = isinstance(head, ZeroShotConfig) or (isinstance(head, MLDecoderConfig) and head.asks_by_words)
    text = recipe.text if by_words else None
    module: Head = head
    if recipe.training.parallel == "split" and isinstance(head, MLDecoderConfig):  # the recipe allows no other
        module = build_split_head(head, len(labels), backbone.num_features)
    model = join(backbone, described, module, labels, text=text, unseen=unseen, task=task, preprocessing=preprocessing)
    if module is not head:
        model.config = model.config.model_copy(update={"head": head})  # as without splitting
    if wish.init_from is not None:
        _initialise(model, wish.init_from, display)
    return model


def _backbone(described: BackboneConfig, recipe: Recipe, display: Display) -> Backbone:
    wish = recipe.backbone
    arguments = {
        "img_size": described.img_size,
        "in_chans": described.in_chans,
        "keep_prefix_tokens": described.keep_prefix_tokens,
        "options": described.options,
    }
    if wish.pretrained is False or wish.init_from is not None:
        return create_backbone(described.name, **arguments)  # type: ignore[arg-type]
    display.say(f"Looking for the pretrained weights of {described.name}.")
    try:
        with _quiet_hub():
            return create_backbone(described.name, pretrained=True, **arguments)  # type: ignore[arg-type]
    except Exception as error:
        if wish.pretrained != "auto":
            raise CheckpointError(
                f"The pretrained weights of {described.name} could not be had: {str(error).splitlines()[0]} "
                f"Pass a file with --init-from, or set backbone.pretrained=false."
            ) from error
        display.say(
            f"Warning: the pretrained weights of {described.name} could not be downloaded, so training starts from "
            f"random ones and will need far more pictures and epochs. Pass a file of weights with --init-from."
        )
        return create_backbone(described.name, **arguments)  # type: ignore[arg-type]


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Keep the hub's lines about every retry to ourselves; what comes of it is said in one of ours."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _initialise(model: Classifier, source: str, display: Display) -> None:
    """Fill the backbone from a file of weights, or backbone and, where the labels are the same, head from a model."""
    if not Path(source).is_dir():
        load_weights(model.backbone, state_of(read_checkpoint(source)), source)
        display.say(f"Backbone from {source}.")
        return
    other = _loaded(source, split=bool(split_layers(model)))
    load_weights(model.backbone, other.backbone.model.state_dict(), source)
    same = other.labels == model.labels and other.config.head.kind == model.config.head.kind
    if same and _sizes(model) == _sizes(other):
        if split_layers(other):  # other groups deal other classes to this process
            model.head.classify = split_layers(other)[0].float()
        model.head.load_state_dict(other.head.state_dict())
        display.say(f"Backbone and head from {source}.")
    else:
        display.say(f"Backbone from {source}; the head starts fresh.")


def _loaded(source: str, *, split: bool) -> Classifier:
    """A model folder or a run; where this run's group layer is split, so is that one's."""
    places = (Path(source), Path(source) / "best", Path(source) / "last")
    place = next((place for place in places if (place / CONFIG).is_file()), None)
    if split and place is not None and type(read_config(place / CONFIG).head) is MLDecoderConfig:
        return load_split(place)
    return load(source)


def _sizes(model: Classifier) -> dict[str, object]:
    """The sizes of everything in a head, as if it were in one piece: all processes must find the same."""
    layers = [(layer.num_classes, layer.num_queries, layer.group_size, layer.width) for layer in split_layers(model)]
    own = {id(value) for layer in split_layers(model) for value in layer.state_dict(keep_vars=True).values()}
    state = model.head.state_dict(keep_vars=True)
    return {"split": layers} | {name: value.shape for name, value in state.items() if id(value) not in own}
