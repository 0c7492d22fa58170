"""Constant parts and int8 weights of ONNX graphs, on graphs written by hand.

Shapes: b batch, k queries, d width, g classes a query.
"""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from mldecoder.export.fold import fold_constants
from mldecoder.export.onnx import runner
from mldecoder.export.quantise import int8_share, quantise

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def graph(nodes: list[onnx.NodeProto], weights: dict[str, Array], shape: Sequence[str | int]) -> onnx.ModelProto:
    made = helper.make_graph(
        nodes,
        "by hand",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("logits")],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    made.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def draw(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_what_no_picture_enters_is_computed_once_and_its_weights_are_dropped() -> None:
    weights = {"queries": draw(0, 3, 4), "project": draw(1, 4, 4), "classify": draw(2, 4, 2)}
    nodes = [
        helper.make_node("MatMul", ["queries", "project"], ["projected"]),
        helper.make_node("Relu", ["projected"], ["side"]),
        helper.make_node("MatMul", ["images", "classify"], ["seen"]),
        helper.make_node("MatMul", ["side", "seen"], ["logits"]),
    ]
    whole = graph(nodes, weights, ["batch", 4, 4])
    folded = fold_constants(whole)
    assert [node.op_type for node in folded.graph.node] == ["MatMul", "MatMul"]
    assert {weight.name for weight in folded.graph.initializer} == {"side", "classify"}
    images = draw(3, 5, 4, 4)
    np.testing.assert_array_equal(
        runner(folded.SerializeToString())([images]), runner(whole.SerializeToString())([images])
    )


def test_a_graph_without_constant_parts_stays_as_it_is() -> None:
    whole = graph([helper.make_node("MatMul", ["images", "w"], ["logits"])], {"w": draw(0, 4, 2)}, ["batch", 4])
    assert fold_constants(whole) is whole


@given(k=st.integers(1, 5), d=st.integers(1, 12), g=st.integers(1, 6), b=st.integers(1, 3))
def test_group_weights_in_int8_have_a_scale_for_each_class(k: int, d: int, g: int, b: int) -> None:
    weight = draw(k, k, d, g) * 10.0 ** np.arange(g, dtype=np.float32)  # classes of very different size
    node = helper.make_node("Einsum", ["images", "groups"], ["logits"], "groups", equation="bkd,kdg->bkg")
    small = quantise(graph([node], {"groups": weight}, ["batch", k, d]))
    assert {w.data_type for w in small.graph.initializer if w.name == "groups_int8"} == {TensorProto.INT8}
    images = draw(1, b, k, d)
    found = runner(small.SerializeToString())([images])
    rounding = np.abs(weight).max(axis=1) / 127 / 2  # half a step, for each weight
    allowed = np.abs(images).sum(axis=2)[:, :, None] * rounding * 1.01 + 1e-5
    assert (np.abs(found - np.einsum("bkd,kdg->bkg", images, weight)) <= allowed).all()


def test_matrix_products_with_weights_become_int8() -> None:
    node = helper.make_node("MatMul", ["images", "w"], ["logits"], "product")
    whole = graph([node], {"w": draw(0, 256, 128)}, ["batch", 256])
    small = quantise(whole)
    assert "MatMulInteger" in {one.op_type for one in small.graph.node}
    assert int8_share(whole) == 0
    assert int8_share(small) > 0.9
    images = draw(1, 3, 256)
    expected = images @ draw(0, 256, 128)
    assert np.abs(runner(small.SerializeToString())([images]) - expected).max() < 0.03 * np.abs(expected).max()
    assert small.ByteSize() == pytest.approx(whole.ByteSize() / 4, rel=0.25)
