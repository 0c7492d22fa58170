"""An ONNX graph as an OpenVINO file, and such a file run by OpenVINO on the CPU."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import openvino  # type: ignore[import-untyped]
from numpy.typing import NDArray

from mldecoder.export.check import Run
from mldecoder.export.metadata import KEY

__all__ = ["runner", "save"]


def save(proto: onnx.ModelProto, path: Path, metadata: str, *, half: bool) -> None:
    """Write ``path`` and the weights beside it (``.bin``), in float16 if wished.

    The file is read by the runtime itself, not by OpenVINO's converter, which asks for consent to telemetry.
    """
    model = openvino.Core().read_model(proto.SerializeToString())
    model.set_rt_info(metadata, [KEY])
    openvino.save_model(model, path, compress_to_fp16=half)


def runner(path: Path, *, threads: int = 0) -> Run:
    """A function that runs the file; computed in float32, whatever the processor would like better."""
    options: dict[str, object] = {"INFERENCE_PRECISION_HINT": "f32"}
    if threads:
        options["INFERENCE_NUM_THREADS"] = threads
    compiled = openvino.Core().compile_model(path, "CPU", options)

    def run(inputs: Sequence[NDArray[np.generic]]) -> NDArray[np.float32]:
        return np.array(compiled(list(inputs))[0], dtype=np.float32)

    return run
