"""A recorded graph as an ONNX file, and such a file run by onnxruntime.

Shapes: b batch, n labels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from mldecoder.errors import ConfigError
from mldecoder.export.check import Run
from mldecoder.export.fold import fold_constants
from mldecoder.export.metadata import KEY
from mldecoder.export.quiet import quiet

__all__ = ["runner", "save", "to_onnx"]

_MOST_BYTES = 2**31 - 1  # protobuf's limit for one file


def to_onnx(program: ExportedProgram, names: Sequence[str], output: str, opset: int) -> onnx.ModelProto:
    """Translate a graph; what the pictures do not enter is computed now, and paths of this machine are left out.

    Args:
        program: The recorded module.
        names: Names of its inputs.
        output: Name of its output.
        opset: Version of ONNX's operators.
    """
    with quiet():
        made = torch.onnx.export(
            program,
            input_names=list(names),
            output_names=[output],
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
        if made is None:
            raise ConfigError("torch.onnx gave no program. Update torch and onnxscript.")
        proto = made.model_proto
    _name_axes(proto)
    for node in proto.graph.node:
        del node.metadata_props[:]  # stack traces of the machine that exported
        node.doc_string = ""
    del proto.graph.value_info[:]  # a runtime finds these shapes by itself
    proto.producer_name = "mldecoder"
    return fold_constants(proto)


def save(proto: onnx.ModelProto, path: Path, metadata: str) -> None:
    """Write the file with its metadata."""
    if proto.ByteSize() > _MOST_BYTES:
        raise ConfigError(
            f"An ONNX file holds at most 2 GB, this model takes {proto.ByteSize() / 1e9:.1f} GB. "
            "Pass --precision float16, or --format torch."
        )
    onnx.helper.set_model_props(proto, {KEY: metadata})
    onnx.save(proto, path)


def runner(model: Path | bytes, *, threads: int = 0) -> Run:
    """A function that runs the file by onnxruntime on the CPU; 0 threads: as many as there are cores."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # an error is raised anyway; it need not be printed too
    options.intra_op_num_threads = threads
    source = model if isinstance(model, bytes) else str(model)
    session: Any = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(inputs: Sequence[NDArray[np.generic]]) -> NDArray[np.float32]:
        (result,) = session.run(None, dict(zip(names, inputs, strict=True)))
        return cast("NDArray[np.float32]", result)

    return run


def _name_axes(proto: onnx.ModelProto) -> None:
    """Call the free axes what they are; torch numbers them."""
    known: dict[str, str] = {}
    wanted = {"images": ["batch", "height", "width"], "text_vectors": ["labels"]}
    for value in proto.graph.input:
        free = [axis for axis in value.type.tensor_type.shape.dim if axis.dim_param]
        for axis, name in zip(free, wanted[value.name], strict=False):
            axis.dim_param = known.setdefault(axis.dim_param, name)
    for value in proto.graph.output:
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = known.get(axis.dim_param, "labels")
