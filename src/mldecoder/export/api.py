"""Export a model: record it, write the file, run the file, compare.

Shapes: n labels, e text width.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import Tensor

from mldecoder.errors import CheckpointError, ConfigError
from mldecoder.export.check import Case, Run, cases, largest_difference, pictures, text_vectors
from mldecoder.export.metadata import dump, metadata
from mldecoder.export.options import SUFFIXES, Format, Options, Precision, default_tolerance
from mldecoder.export.trace import has_free_size, takes_size, trace
from mldecoder.export.wrap import Exportable, own_copy
from mldecoder.model import Classifier

__all__ = ["Exported", "export_model"]


@dataclass(frozen=True)
class Exported:
    """A file that was written and checked.

    Attributes:
        path: The file; OpenVINO keeps the weights beside it, and a zero-shot model its labels' vectors.
        bytes: Size on disk of what is needed to run it.
        difference: The largest step between its output and the model's.
        tolerance: The step that was allowed.
        output: What comes out, logits or probabilities.
        any_size: Whether it takes pictures of other sizes.
        notes: What else is worth knowing, in sentences.
    """

    path: Path
    bytes: int
    difference: float
    tolerance: float
    output: str
    any_size: bool
    notes: tuple[str, ...]


def export_model(
    model: Classifier,
    path: str | Path,
    format: Format = "onnx",
    *,
    precision: Precision = "float32",
    with_preprocessing: bool = False,
    with_sigmoid: bool = False,
    size: int | tuple[int, int] | None = None,
    opset: int = 20,
    tolerance: float | None = None,
) -> Exported:
    """Write a model for another runtime, and check the file against the model.

    The batch is always free; height and width are, where the backbone allows it. A zero-shot model takes the labels'
    vectors ``(n, e)`` as a second input, with any number of labels; those of its own labels are written beside the
    file, as ``NAME.words.npz``.

    Args:
        model: A trained model; it is not changed.
        path: The file to write; one that is there already is replaced when the new one has passed.
        format: ``"onnx"``, ``"torch"`` (``torch.export``) or ``"openvino"``.
        precision: ``"float32"``, ``"float16"``, or ``"int8"`` weights in matrix products (not for torch).
        with_preprocessing: Take uint8 pictures ``(b, h, w, 3)``, RGB, and normalise inside. Resizing stays outside.
        with_sigmoid: Give calibrated probabilities instead of logits: softmax where exactly one label is right.
        size: Side of the pictures, or (height, width); ``None`` takes the model's own.
        opset: Version of ONNX's operators.
        tolerance: How far the file's output may be from the model's; ``None`` takes 1e-4 for float32, 0.05 for
            float16 and 0.5 for int8 where logits come out.

    Raises:
        CheckpointError: if the file is further from the model than the tolerance; it is then kept as ``NAME.failed``.
    """
    options = Options(format, precision, with_preprocessing, with_sigmoid, opset)
    _check_installed(format)
    path = _checked_path(Path(path), format)
    if with_preprocessing and model.config.backbone.in_chans != 3:
        raise ConfigError(
            f"Preprocessing inside is for RGB pictures, this model takes {model.config.backbone.in_chans} channels."
        )
    allowed = default_tolerance(options, model.config) if tolerance is None else tolerance
    sides = model.config.preprocessing.size if size is None else (size, size) if isinstance(size, int) else size
    reference = Exportable(own_copy(model), Options(format, "float32", with_preprocessing, with_sigmoid, opset))
    if not takes_size(reference, cases(reference, sides, batches=(2,))[0].inputs):
        raise ConfigError(
            f"{model.config.backbone.name} does not take pictures of {sides[0]} x {sides[1]} px. "
            f"Leave --size out for {model.config.preprocessing.size[0]}, or take a multiple of its patch size."
        )
    with TemporaryDirectory(dir=path.parent, prefix=".exporting-") as name:
        draft = _Draft(model, reference, options, Path(name) / path.name, sides)
        any_size, difference = draft.make(allowed)
        if not difference <= allowed:
            failed = _move(draft.path, path.with_name(f"{path.name}.failed"))
            raise CheckpointError(
                f"The file differs from the model by {difference:.1e} in its {draft.output}, {allowed:.1e} is allowed. "
                f"It is kept as {failed}; pass --tolerance if that is good enough."
            )
        _move(draft.path, path)
        notes = (*draft.notes, *_save_words(model, path))
    return Exported(path, _size(path), difference, allowed, draft.output, any_size, notes)


class _Draft:
    """A file on its way: with a free size if that works, else with a fixed one."""

    def __init__(
        self, model: Classifier, reference: Exportable, options: Options, path: Path, sides: tuple[int, int]
    ) -> None:
        self.model, self.reference, self.options, self.path, self.sides = model, reference, options, path, sides
        self.output = "probabilities" if options.probabilities else "logits"
        self.notes: list[str] = []

    def make(self, allowed: float) -> tuple[bool, float]:
        """Write and compare: whether the size is free, and the largest difference."""
        here = cases(self.reference, self.sides)
        if self.reference.model.backbone.layout != "NLC":  # a row of tokens has positions for one size
            elsewhere = cases(self.reference, (self.sides[0] + 64, self.sides[1] + 32), batches=(2,))
            if takes_size(self.reference, elsewhere[0].inputs):
                run, free = self._write(any_size=True)
                moved = _difference_or_infinite(run, self.reference, elsewhere) if free else float("inf")
                if moved <= allowed:
                    return True, max(moved, largest_difference(run, self.reference, here))
        run, _ = self._write(any_size=False)
        self.notes.append(f"Pictures must be {self.sides[0]} x {self.sides[1]} px: the backbone is made for one size.")
        return False, largest_difference(run, self.reference, here)

    def _write(self, *, any_size: bool) -> tuple[Run, bool]:
        """Write the file: what runs it, and whether its size is free."""
        options, format = self.options, self.options.format
        module = Exportable(own_copy(self.model), options)
        program = trace(module, self._example(module), any_size=any_size)
        any_size = has_free_size(program, channels_last=options.preprocessing)
        text = dump(metadata(self.model, options, size=self.sides, any_size=any_size))
        if format == "torch":
            from mldecoder.export import torch_program

            torch_program.save(program, self.path, text)
            return torch_program.runner(self.path), any_size
        from mldecoder.export import onnx

        names = ["images", "text_vectors"][: 2 if self.model.zero_shot else 1]
        proto = onnx.to_onnx(program, names, self.output, options.opset)
        if options.precision == "int8":
            from mldecoder.export.quantise import int8_share, quantise

            proto = quantise(proto)
            share = int8_share(proto)
            self.notes = [f"{share:.0%} of the weights are int8; convolutions, norms and positions stay float32."]
        if format == "openvino":
            from mldecoder.export import openvino

            openvino.save(proto, self.path, text, half=options.precision == "float16")
            return openvino.runner(self.path), any_size
        onnx.save(proto, self.path, text)
        return onnx.runner(self.path), any_size

    def _example(self, module: Exportable) -> list[Tensor]:
        """Three pictures and, where labels are words, vectors."""
        inputs = [pictures(module, 3, self.sides)]
        words = self.model.words
        return inputs if words is None else [*inputs, text_vectors(module, len(words.vectors))]


def _difference_or_infinite(run: Run, reference: Exportable, among: list[Case]) -> float:
    """How far the file is from the model at a size that it may refuse."""
    try:
        return largest_difference(run, reference, among)
    except Exception:  # each runtime refuses by an exception of its own
        return float("inf")


def _check_installed(format: Format) -> None:
    common = ("onnx", "onnxscript", "onnxruntime")
    modules = {"onnx": common, "openvino": (*common, "openvino")}
    for name in modules.get(format, ()):
        if find_spec(name) is None:
            raise ConfigError(f"Export to {format} needs {name}: pip install 'mldecoder[export]'.")


def _checked_path(path: Path, format: Format) -> Path:
    suffix = SUFFIXES.get(format)
    if suffix is not None and path.suffix != suffix:
        raise ConfigError(f"A file for {format} must end in {suffix}, got {path.name}.")
    if not path.parent.is_dir():
        raise ConfigError(f"There is no folder {path.parent}. Make it first.")
    return path


def _move(source: Path, target: Path) -> Path:
    """Move a file and the weights beside it, which bear its name; the weights first."""
    weights = source.with_suffix(".bin")
    if weights.is_file():
        failed = target.with_name(f"{weights.name}.failed")
        weights.replace(target.with_suffix(".bin") if target.suffix == ".xml" else failed)
    source.replace(target)
    return target


def _save_words(model: Classifier, path: Path) -> list[str]:
    if model.words is None:
        return []
    beside = path.with_suffix(".words.npz")
    np.savez(beside, labels=np.array(model.labels), vectors=model.words.vectors.float().cpu().numpy())
    return [f"The vectors of its {len(model.labels)} labels are in {beside.name}, for the input text_vectors."]


def _size(path: Path) -> int:
    weights = path.with_suffix(".bin")
    return path.stat().st_size + (weights.stat().st_size if path.suffix == ".xml" and weights.is_file() else 0)
