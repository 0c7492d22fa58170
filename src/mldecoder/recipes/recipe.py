"""The schema of a recipe. Flags name inputs and outputs; everything else stands here."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from mldecoder.config import BackboneConfig, HeadConfig, MLDecoderConfig, Section, Task, TextConfig, ZeroShotConfig
from mldecoder.data.options import DataOptions
from mldecoder.data.transforms import AugmentConfig
from mldecoder.losses import Loss, build

__all__ = [
    "BackboneSettings",
    "DataSettings",
    "EvaluationSettings",
    "ImageSettings",
    "OptimiserSettings",
    "Recipe",
    "TrainingSettings",
    "ZeroShotSettings",
]


class BackboneSettings(BackboneConfig):
    """Which network, and where its first weights come from.

    ``init_from`` is a safetensors file of the backbone's weights or a model folder. ``pretrained`` downloads the
    library's weights; with ``"auto"`` training goes on without them, and says so, where they cannot be had.
    """

    pretrained: bool | Literal["auto"] = False
    init_from: str | None = None


class ImageSettings(Section):
    """Size and scaling of the pictures.

    ``statistics`` are the mean and spread that the backbone was trained with, or ``"unit"``: 0..1 and nothing else.
    """

    size: int = Field(default=224, ge=1)
    resize: Literal["squash", "crop"] = "crop"
    crop_pct: float = Field(default=0.95, gt=0, le=1)
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    statistics: Literal["backbone", "unit"] = "backbone"


class DataSettings(Section):
    """How to read the data; ``options`` are those of the readers.

    ``unseen`` are labels that are never trained, for a zero-shot head to be measured on: a list, ``scenes``,
    ``nus-wide``, or a file; see :func:`mldecoder.data.unseen.named_labels`. ``leave_out``, in the same words, are
    labels that are not looked at in any way. ``keep`` decodes every picture once and holds it, in ``memory`` or on the
    ``device``; see :mod:`mldecoder.training.kept`.
    """

    options: dict[str, Any] = {}
    task: Task | None = None
    unseen: str | tuple[str, ...] | None = None
    leave_out: str | tuple[str, ...] | None = None
    val_fraction: float = Field(default=0.1, gt=0, lt=1)
    max_broken: float | int = 0.01
    workers: int | None = Field(default=None, ge=0)
    keep: Literal["none", "memory", "device"] = "none"

    @field_validator("options")
    @classmethod
    def _known(cls, value: dict[str, Any]) -> dict[str, Any]:
        DataOptions.of(value)
        return value


class OptimiserSettings(Section):
    """Optimiser by timm's name; the factors multiply the learning rate of a part of the model.

    ``text_factor`` comes on top of the head's, for what a zero-shot head makes of text vectors.
    """

    kind: str = "adamw"
    lr: float = Field(default=2.0e-4, ge=0)
    weight_decay: float = Field(default=1.0e-4, ge=0)
    backbone_factor: float = Field(default=1.0, ge=0)
    head_factor: float = Field(default=1.0, ge=0)
    text_factor: float = Field(default=1.0, ge=0)
    momentum: float = 0.9


class TrainingSettings(Section):
    """The loop. ``batch_size`` is that of one optimiser step over all processes.

    ``grouped_loss`` computes group layer and loss block by block, so that logits and their gradient never exist; by
    default from 20,000 labels on, where head and loss allow it.

    ``parallel`` says how several processes share the model: each has a whole copy (``ddp``), or a part of each weight,
    its gradient and its optimiser state (``fsdp``), for models that do not fit otherwise, or a whole copy but for the
    head's group layer, of which it has a part (``split``), for so many labels that this layer does not fit.
    ``eval_every`` and ``save_every`` are epochs; both always happen after the last one. Checkpoints by the clock
    (``checkpoint_minutes``) or by steps come besides.
    ``sync_batch_norm`` lets batch norm see the whole step instead of one process's share, on GPUs. ``settle_norms``
    takes the statistics of batch norm anew after the last epoch, over training pictures as the evaluation shows them.
    """

    epochs: int = Field(default=40, ge=1)
    batch_size: int = Field(default=64, ge=1)
    accumulate: int = Field(default=1, ge=1)
    schedule: Literal["one-cycle", "cosine", "constant"] = "one-cycle"
    warmup: float = Field(default=0.2, ge=0, lt=1)
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    ema_decay: float | None = Field(default=0.9997, gt=0, lt=1)
    clip_norm: float | None = Field(default=None, gt=0)
    freeze: Literal["none", "backbone"] = "none"
    compile: bool = False
    grouped_loss: bool | None = None
    parallel: Literal["ddp", "fsdp", "split"] = "ddp"
    sync_batch_norm: bool = False
    settle_norms: bool = False
    channels_last: bool = True
    seed: int = Field(default=0, ge=0)
    log_every: int = Field(default=20, ge=1)
    checkpoint_minutes: float = Field(default=10.0, ge=0)
    checkpoint_steps: int | None = Field(default=None, ge=1)
    eval_every: int = Field(default=1, ge=1)
    save_every: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _go_together(self) -> "TrainingSettings":
        refused = {
            "compile=true": self.compile,
            "precision=fp16": self.precision == "fp16",
            "settle_norms=true": self.settle_norms,
        }
        for name, found in refused.items():
            if self.parallel != "ddp" and found:
                raise ValueError(
                    f"training.parallel={self.parallel} does not go with training.{name}. Leave one of them out"
                    + (", or take bf16." if "fp16" in name else ".")
                )
        if self.parallel == "split" and self.grouped_loss is False:
            raise ValueError("training.parallel=split has the grouped loss, got grouped_loss=false. Leave that out.")
        return self


class ZeroShotSettings(Section):
    """How queries vary in the training of a zero-shot head; see :mod:`mldecoder.training.zero_shot`.

    ``noise`` is a standard deviation, as a multiple of the labels' spread or in the vectors' own unit; ``cutout`` the
    share of numbers that are zeroed; ``random_queries`` and ``mix`` are how many queries come on top, as a share of
    the labels. ``random_reading`` says what random queries are: positive on the class output, positive on an output
    of their own (``extra``), or negatives. ``shuffle`` lets a label meet other company in its group in every step;
    by default where groups are read by text.
    """

    noise: float = Field(default=0.0, ge=0)
    noise_scale: Literal["spread", "unit"] = "spread"
    random_queries: float = Field(default=0.0, ge=0)
    random_reading: Literal["extra", "class", "negatives"] = "extra"
    cutout: float = Field(default=0.0, ge=0, lt=1)
    mix: float = Field(default=0.0, ge=0)
    mix_alpha: float = Field(default=1.0, gt=0)
    mix_targets: Literal["mixed", "maximum"] = "mixed"
    shuffle: bool | None = None


class EvaluationSettings(Section):
    """Evaluation, at another size or over the mirrored picture too where wished."""

    size: int | None = Field(default=None, ge=1)
    flip: bool = False
    batch_size: int | None = Field(default=None, ge=1)
    threshold: float = Field(default=0.5, gt=0, lt=1)


class Recipe(Section):
    """Everything that decides what a training run does, given its data.

    ``expected`` holds the figures to be reached, each with its source. ``loss.kind: auto`` takes the loss that fits
    the data's task. ``text`` and ``zero_shot`` are for the zero-shot head.
    """

    name: str = "recipe"
    description: str = ""
    expected: dict[str, str] = {}
    backbone: BackboneSettings = BackboneSettings()
    head: HeadConfig = MLDecoderConfig()
    text: TextConfig = TextConfig()
    zero_shot: ZeroShotSettings = ZeroShotSettings()
    image: ImageSettings = ImageSettings()
    data: DataSettings = DataSettings()
    augment: AugmentConfig = AugmentConfig()
    loss: dict[str, Any] = {"kind": "auto"}
    optimiser: OptimiserSettings = OptimiserSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    @field_validator("loss")
    @classmethod
    def _buildable(cls, value: dict[str, Any]) -> dict[str, Any]:
        for task in _LOSS_OF_TASK:
            build(*_named(value, task))
        return value

    @model_validator(mode="after")
    def _words_for_words(self) -> "Recipe":
        zero_shot = isinstance(self.head, ZeroShotConfig)
        if not zero_shot and self.data.unseen is not None:
            raise ValueError("data.unseen needs a head that scores labels it never saw. Set head.kind=zero-shot.")
        if not zero_shot and self.zero_shot != ZeroShotSettings():
            raise ValueError("the settings in zero_shot are for the zero-shot head. Set head.kind=zero-shot.")
        return self

    @model_validator(mode="after")
    def _can_be_kept(self) -> "Recipe":
        for key in ("auto", "colour"):
            value = getattr(self.augment, key)
            if self.data.keep != "none" and value not in ("none", 0):
                raise ValueError(
                    f"data.keep={self.data.keep} varies pictures by crop, flip and cutout alone, got "
                    f"augment.{key}={value}. Leave that out, or set data.keep=none."
                )
        return self

    @model_validator(mode="after")
    def _can_be_split(self) -> "Recipe":
        head = self.head
        if self.training.parallel != "split":
            return self
        if type(head) is not MLDecoderConfig:  # ml-decoder+ builds on it, and may read the weights itself
            raise ValueError(
                f"training.parallel=split splits the group layer of head.kind=ml-decoder, got {head.kind}. "
                f"Take that head, or training.parallel=fsdp."
            )
        if head.queries not in ("fixed", "learnable") or head.groups not in ("random", "ordered"):
            raise ValueError(
                f"training.parallel=split needs head.queries fixed or learnable and head.groups random or ordered, "
                f"got {head.queries} and {head.groups}. Change these, or take training.parallel=fsdp."
            )
        return self

    def loss_of(self, task: Task) -> Loss:
        """The loss as a function."""
        return build(*self.named_loss(task))

    def named_loss(self, task: Task) -> tuple[str, dict[str, Any]]:
        """The loss by its name and options; ``auto`` is the one that fits the task."""
        return _named(self.loss, task)


_LOSS_OF_TASK: dict[Task, dict[str, Any]] = {
    "multi-label": {"kind": "asymmetric", "gamma_neg": 4, "gamma_pos": 0, "clip": 0.05},
    "single-label": {"kind": "softmax", "label_smoothing": 0.1},
}


def _named(loss: dict[str, Any], task: Task) -> tuple[str, dict[str, Any]]:
    options = dict(loss)
    kind = options.pop("kind", "auto")
    if kind == "auto":
        options = _LOSS_OF_TASK[task] | options
        kind = options.pop("kind")
    return kind, options
