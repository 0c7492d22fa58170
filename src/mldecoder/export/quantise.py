"""int8 weights: onnxruntime's dynamic quantisation of matrix products.

Weights become int8 with one scale a column; what they are multiplied with is brought to 8 bits picture by picture.
Convolutions, norms, embeddings and attention between tokens stay in float32.

Shapes: b batch, k queries, d width, g classes a query.
"""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mldecoder.export.quiet import quiet

__all__ = ["int8_share", "quantise"]


def quantise(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with int8 weights in its matrix products, the group layer's among them."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryDirectory(prefix="mldecoder-") as folder, quiet():
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(
            _groups_in_int8(proto),
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True},
        )
        made: onnx.ModelProto = onnx.load(path)
    made.producer_name = "mldecoder"
    return made


def int8_share(proto: onnx.ModelProto) -> float:
    """Which share of the weights, by count, is int8."""
    counts = {weight.name: math.prod(weight.dims) for weight in proto.graph.initializer}
    small = {weight.name for weight in proto.graph.initializer if weight.data_type == TensorProto.INT8}
    share: float = sum(counts[name] for name in small) / max(1, sum(counts.values()))
    return share


def _groups_in_int8(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Store the group layer's weights ``(k, d, g)`` in int8 with one scale a class.

    The quantiser knows matrices only. The product itself stays in float32: a runtime unpacks the weights when it
    loads the file.
    """
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    weights = {weight.name: weight for weight in proto.graph.initializer}
    groups = {node.input[1] for node in proto.graph.node if node.op_type == "Einsum"} & set(weights)
    unpack: list[onnx.NodeProto] = []
    for name in sorted(groups):
        values = numpy_helper.to_array(weights[name])
        scale = np.maximum(np.abs(values).max(axis=1, keepdims=True) / 127, 1e-12).astype(np.float32)  # (k, 1, g)
        small = np.round(values / scale).astype(np.int8)
        made.graph.initializer.remove(weights[name])
        made.graph.initializer.append(numpy_helper.from_array(small, f"{name}_int8"))
        made.graph.initializer.append(numpy_helper.from_array(scale, f"{name}_scale"))
        unpack += [
            helper.make_node("Cast", [f"{name}_int8"], [f"{name}_cast"], f"{name}_cast", to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"{name}_cast", f"{name}_scale"], [name], f"{name}_unpack"),
        ]
    del made.graph.node[:]
    made.graph.node.extend([*unpack, *proto.graph.node])
    return made
