"""Compute what no input enters while the file is made: in ML-Decoder, the whole query side of the first layer."""

from typing import Any, cast

import onnx
from onnx import numpy_helper

__all__ = ["fed_by_inputs", "fold_constants"]


def fold_constants(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with constant parts replaced by their results, and without weights that only these used."""
    graph = proto.graph
    fed = fed_by_inputs(graph)
    constant = [node for node in graph.node if not fed.intersection(node.output)]
    rest = [node for node in graph.node if fed.intersection(node.output)]
    computed = {name for node in constant for name in node.output}
    wanted = sorted({name for node in rest for name in node.input} & computed)
    if not wanted:
        return proto
    results = _compute(proto, constant, wanted)
    folded = onnx.ModelProto()
    folded.CopyFrom(proto)
    del folded.graph.node[:], folded.graph.initializer[:]
    folded.graph.node.extend(rest)
    used = {name for node in rest for name in node.input}
    folded.graph.initializer.extend(weight for weight in graph.initializer if weight.name in used)
    folded.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in results.items())
    return folded


def fed_by_inputs(graph: onnx.GraphProto) -> set[str]:
    """Names of all values that depend on an input; nodes stand in the order of their computation."""
    fed = {value.name for value in graph.input}
    for node in graph.node:
        if fed.intersection(node.input):
            fed.update(node.output)
    return fed


def _compute(proto: onnx.ModelProto, nodes: list[onnx.NodeProto], wanted: list[str]) -> dict[str, Any]:
    """Run a part of the graph that has no inputs."""
    import onnxruntime

    needed = {name for node in nodes for name in node.input}
    weights = [weight for weight in proto.graph.initializer if weight.name in needed]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in wanted]
    part = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "constants", [], outputs, weights),
        opset_imports=proto.opset_import,
        ir_version=proto.ir_version,
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(wanted, cast("list[Any]", session.run(wanted, {})), strict=True))
