"""What can be asked of an export, and how far a file may be from the model."""

from dataclasses import dataclass
from typing import Literal, get_args

from mldecoder.config import ModelConfig
from mldecoder.errors import ConfigError

__all__ = ["SUFFIXES", "Format", "Options", "Precision", "default_tolerance"]

Format = Literal["onnx", "torch", "openvino"]
Precision = Literal["float32", "float16", "int8"]

SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2", "openvino": ".xml"}
_LOGITS: dict[Precision, float] = {"float32": 1e-4, "float16": 0.05, "int8": 0.5}
_LEAST_OPSET = 18  # the oldest that torch's exporter writes


@dataclass(frozen=True)
class Options:
    """The wishes, checked.

    Args:
        format: Which runtime the file is for.
        precision: Of the weights; see the package's documents for what each format computes in.
        preprocessing: Take uint8 pictures ``(b, h, w, 3)`` and normalise inside.
        probabilities: Give calibrated probabilities instead of logits.
        opset: Version of ONNX's operators.
    """

    format: Format = "onnx"
    precision: Precision = "float32"
    preprocessing: bool = False
    probabilities: bool = False
    opset: int = 20

    def __post_init__(self) -> None:
        for name, value, known in (
            ("format", self.format, get_args(Format)),
            ("precision", self.precision, get_args(Precision)),
        ):
            if value not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
        if self.precision == "int8" and self.format == "torch":
            raise ConfigError("int8 is for onnx and openvino; torch programs come in float32 and float16.")
        if self.opset < _LEAST_OPSET:
            raise ConfigError(f"opset must be at least {_LEAST_OPSET}, got {self.opset}. Leave it out.")


def default_tolerance(options: Options, config: ModelConfig) -> float:
    """How far the file's output may be from the model's.

    Logits may move by 1e-4 in float32, 0.05 in float16 and 0.5 in int8. Where probabilities come out, by what such a
    step can move them at most: a quarter of it through a sigmoid, half of it through a softmax.
    """
    step = _LOGITS[options.precision]
    if not options.probabilities:
        return step
    return step * (0.5 if config.task == "single-label" else 0.25) / (config.temperature or 1.0)
