"""What a model is, as data: the schema behind ``config.json``.

Sections are frozen and refuse unknown keys, naming the nearest known one. Recipes use the same sections.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import nn

from mldecoder.errors import ConfigError, did_you_mean
from mldecoder.heads import GlobalAveragePool, MLDecoder, TransformerDecoder, ZeroShotMLDecoder
from mldecoder.heads.decoder import Decoder
from mldecoder.heads.groups import GroupLayout, placeholder
from mldecoder.heads.plus import MLDecoderPlus
from mldecoder.heads.plus_options import Branch, Norm, PlusOptions, Positions
from mldecoder.heads.zero_shot_groups import QueryKind, ReadoutKind, count_groups

__all__ = [
    "HEAD_CONFIGS",
    "BackboneConfig",
    "GlobalAveragePoolConfig",
    "HeadConfig",
    "HeadSection",
    "MLDecoderConfig",
    "MLDecoderPlusConfig",
    "ModelConfig",
    "PreprocessingConfig",
    "Section",
    "Task",
    "TextConfig",
    "TransformerDecoderConfig",
    "ZeroShotConfig",
    "describe_head",
    "parse",
]

Task = Literal["multi-label", "single-label"]


class Section(BaseModel):
    """A part of a config."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")


S = TypeVar("S", bound=Section)


def parse(section: type[S], data: Mapping[str, Any], where: str) -> S:
    """Validate ``data``; on the first thing that is wrong, say where it stands and what would be right."""
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_first_problem(section, error)}") from None


class BackboneConfig(Section):
    """Which network makes features of a picture."""

    name: str = "resnet50"
    img_size: tuple[int, int] | None = None
    in_chans: int = 3
    keep_prefix_tokens: bool = False
    options: dict[str, Any] = {}


class HeadSection(Section, ABC):
    """Which head reads the features."""

    @abstractmethod
    def build(self, num_classes: int, in_features: int) -> nn.Module:
        """The head, untrained."""


class _DecoderConfig(HeadSection):
    width: int = 768
    ff_width: int = 2048
    heads: int = 8
    depth: int = 1
    dropout: float = 0.1
    checkpoint_layers: bool = False


class MLDecoderConfig(_DecoderConfig):
    """ML-Decoder; the fields are the arguments of :class:`mldecoder.MLDecoder`.

    Queries and groups that were given as tensors are saved with the weights: ``given`` and their size stand here.
    ``queries: text`` and ``groups: semantic`` come from the labels' text vectors; what is built of them is ``given``.
    """

    kind: Literal["ml-decoder"] = "ml-decoder"
    num_queries: int | None = None
    queries: Literal["fixed", "learnable", "text", "given"] = "fixed"
    query_width: int | None = None
    groups: Literal["random", "ordered", "semantic", "given"] = "random"
    group_size: int | None = None
    group_layout: GroupLayout = "balanced"
    seed: int = 0

    @property
    def asks_by_words(self) -> bool:
        """Whether the labels' text vectors are needed to build it."""
        return self.queries == "text" or self.groups == "semantic"

    def build(self, num_classes: int, in_features: int) -> nn.Module:
        """The head, untrained."""
        if self.asks_by_words:  # built by mldecoder.model.label_queries
            raise ConfigError("queries=text and groups=semantic need labels: use create_model, or a recipe.")
        num_queries = self.num_queries or min(100, num_classes)
        given_queries = torch.zeros(num_queries, self.query_width or self.width)
        given_groups = placeholder(num_classes, num_queries, self.group_size or -(-num_classes // num_queries))
        return self._module()(
            num_classes,
            in_features,
            num_queries=num_queries,
            queries=given_queries if self.queries == "given" else self.queries,
            groups=given_groups if self.groups == "given" else self.groups,
            group_layout=self.group_layout,
            seed=self.seed,
            **self.model_dump(include=set(_DecoderConfig.model_fields)),
        )

    def _module(self) -> Callable[..., MLDecoder]:
        return MLDecoder


class MLDecoderPlusConfig(MLDecoderConfig):
    """ML-Decoder with options beyond the paper; see :class:`mldecoder.heads.plus_options.PlusOptions`."""

    kind: Literal["ml-decoder+"] = "ml-decoder+"  # type: ignore[assignment]  # the kind tells the two apart
    norm: Norm = "post"
    qk_norm: bool = False
    projections: bool = True
    layer_scale: float | None = None
    positions: Positions = "none"
    token_norm: bool = False
    token_dropout: float = 0.0
    query_drop: float = 0.0
    branch: Branch = "mean+max"
    branch_drop: float = 0.0
    cosine: bool = False
    prior: float | None = None

    def _module(self) -> Callable[..., MLDecoder]:
        options = self.model_dump(include={field.name for field in fields(PlusOptions)})
        return partial(MLDecoderPlus, options=PlusOptions(**options))


class TransformerDecoderConfig(_DecoderConfig):
    """The transformer-decoder baseline."""

    kind: Literal["transformer-decoder"] = "transformer-decoder"
    queries: Literal["fixed", "learnable"] = "learnable"
    seed: int = 0

    def build(self, num_classes: int, in_features: int) -> nn.Module:
        """The head, untrained."""
        return TransformerDecoder(num_classes, in_features, **self.model_dump(exclude={"kind"}))


class GlobalAveragePoolConfig(HeadSection):
    """Global average pooling."""

    kind: Literal["gap"] = "gap"
    dropout: float = 0.0

    def build(self, num_classes: int, in_features: int) -> nn.Module:
        """The head, untrained."""
        return GlobalAveragePool(num_classes, in_features, dropout=self.dropout)


COMMON_QUERIES = 32  # where nothing else is said


class ZeroShotConfig(_DecoderConfig):
    """ML-Decoder with text vectors for queries; the fields are the arguments of :class:`mldecoder.ZeroShotMLDecoder`.

    ``text_width`` is that of the text encoder, and need not be said where there is one.
    """

    kind: Literal["zero-shot"] = "zero-shot"
    text_width: int | None = None
    group_size: int = 1
    query: QueryKind = "text"
    readout: ReadoutKind = "shared"
    num_groups: int | None = None
    query_relu: bool | None = None

    def build(self, num_classes: int, in_features: int) -> nn.Module:
        """The head, untrained."""
        if self.text_width is None:
            raise ConfigError("A zero-shot head needs text vectors: pass text=..., or head.text_width.")
        enough = COMMON_QUERIES if self.query == "common" else count_groups(num_classes, max(1, self.group_size))
        groups = self.num_groups or enough
        options = self.model_dump(exclude={"kind", "num_groups", "text_width"})
        return ZeroShotMLDecoder(in_features, self.text_width, num_groups=groups, **options)


HeadConfig = Annotated[
    MLDecoderConfig | MLDecoderPlusConfig | TransformerDecoderConfig | GlobalAveragePoolConfig | ZeroShotConfig,
    Field(discriminator="kind"),
]
HEAD_CONFIGS: dict[str, type[HeadSection]] = {
    "ml-decoder": MLDecoderConfig,
    "ml-decoder+": MLDecoderPlusConfig,
    "transformer-decoder": TransformerDecoderConfig,
    "gap": GlobalAveragePoolConfig,
    "zero-shot": ZeroShotConfig,
}


class TextConfig(Section):
    """How labels become the vectors that a zero-shot head asks with; see :func:`mldecoder.text.encode_labels`.

    ``descriptions`` are sentences that stand for a label instead of its name. ``scaling`` measures vectors by how the
    trained labels differ; see :class:`mldecoder.label_words.TextScaling`. ``neighbours`` is the share of a new label's
    score that comes from the trained labels nearest to it; see :class:`mldecoder.heads.neighbours.Neighbours`.
    """

    encoder: str = "glove-50"
    templates: tuple[str, ...] = ("{}",)
    descriptions: dict[str, tuple[str, ...]] = {}
    oov: Literal["nearest", "parts", "error"] = "nearest"
    normalise: bool = True
    scaling: Literal["none", "standard", "whiten"] = "none"
    shrinkage: float = Field(default=0.1, ge=0)
    neighbours: float = Field(default=0.0, ge=0, le=1)
    neighbour_temperature: float = Field(default=0.02, gt=0)


class PreprocessingConfig(Section):
    """How a picture becomes the tensor that the model was trained on."""

    size: tuple[int, int] = (224, 224)
    resize: Literal["squash", "crop"] = "squash"
    crop_pct: float = 1.0
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)


class ModelConfig(Section):
    """A whole model, as ``config.json`` holds it."""

    schema_version: Literal[1] = 1
    backbone: BackboneConfig
    head: HeadConfig
    labels: tuple[str, ...]
    unseen: tuple[str, ...] = ()  # those of the labels that were never trained
    text: TextConfig | None = None
    task: Task = "multi-label"
    preprocessing: PreprocessingConfig = PreprocessingConfig()
    thresholds: float | tuple[float, ...] | None = None
    global_threshold: float | None = None  # for labels that have no threshold of their own
    temperature: float | None = Field(default=None, gt=0)  # calibrated: sigmoid(logit / temperature + bias)
    bias: float | None = None
    metrics: dict[str, float] = {}


def describe_head(head: nn.Module) -> HeadSection:
    """The config that builds a head like this one; its tensors come from the weights."""
    if isinstance(head, MLDecoder):
        learnable = isinstance(head.queries, nn.Parameter)
        plus = isinstance(head, MLDecoderPlus)
        return (MLDecoderPlusConfig if plus else MLDecoderConfig)(
            num_queries=head.num_queries,
            queries="learnable" if learnable else "given",
            query_width=None if learnable else head.queries.shape[1],
            groups="given",
            group_size=head.classify.group_size,
            **(head.settings() if isinstance(head, MLDecoderPlus) else _decoder_sizes(head.decoder)),
        )
    if isinstance(head, TransformerDecoder):
        return TransformerDecoderConfig(
            queries="learnable" if isinstance(head.queries, nn.Parameter) else "fixed", **_decoder_sizes(head.decoder)
        )
    if isinstance(head, GlobalAveragePool):
        return GlobalAveragePoolConfig(dropout=head.dropout.p)
    if isinstance(head, ZeroShotMLDecoder):
        return ZeroShotConfig(
            text_width=head.text_width,
            group_size=head.group_size,
            query=head.query,
            readout=head.readout,
            num_groups=head.num_groups,
            query_relu=head.query_relu,
            **_decoder_sizes(head.decoder),
        )
    raise ConfigError(f"A model can be saved with the heads of this package, got {type(head).__name__}.")


def _decoder_sizes(decoder: Decoder) -> dict[str, Any]:
    layer = decoder.first_layer
    return {
        "width": decoder.embed.out_features,
        "ff_width": layer.linear1.out_features,
        "heads": layer.attention.heads,
        "depth": len(decoder.layers),
        "dropout": layer.dropout.p,
        "checkpoint_layers": decoder.checkpoint_layers,
    }


def _first_problem(section: type[Section], error: ValidationError) -> str:
    problem = error.errors()[0]
    loc = [str(part) for part in problem["loc"]]
    path = [part for part in loc if part not in HEAD_CONFIGS]  # the kind of a head is not a key
    if problem["type"] == "extra_forbidden":
        known = _fields_at(section, loc[:-1])
        hint = did_you_mean(path[-1], known, f"Known keys: {', '.join(sorted(known))}.")
        return f"unknown key {'.'.join(path)!r}. {hint}"
    where = ".".join(path) or "the config"
    if problem["type"] == "value_error":  # one of our own sentences
        return f"{where}: {problem['msg'].removeprefix('Value error, ')}"
    return f"{where}: {problem['msg']}, got {problem['input']!r}."


def _fields_at(section: type[Section], path: list[str]) -> list[str]:
    """The keys that stand at a path of the schema; a kind of a union is a part of the path that names it."""
    for part in path:
        if part in HEAD_CONFIGS:
            section = HEAD_CONFIGS[part]
            continue
        field = section.model_fields.get(part)
        annotation = field.annotation if field else None
        for choice in (annotation, *get_args(annotation)):  # a section may be optional
            if isinstance(choice, type) and issubclass(choice, Section):
                section = choice
    return list(section.model_fields)
