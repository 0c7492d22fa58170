"""Recordings of the public implementations, read from tensors alone."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mldecoder.convert import head_from_state_dict
from mldecoder.heads import MLDecoder, ZeroShotMLDecoder

GOLDEN = Path(__file__).parents[1] / "golden"
GROUPED = ["official_full", "official_grouped", "official_grouped_sparse", "timm_grouped"]


def recording(name: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    tensors = load_file(GOLDEN / f"{name}.safetensors")
    state = {key.removeprefix("state."): value for key, value in tensors.items() if key.startswith("state.")}
    return tensors, state


@pytest.mark.parametrize("name", GROUPED)
def test_logits_equal_the_recording(name: str) -> None:
    tensors, state = recording(name)
    head = head_from_state_dict(state).eval()
    assert isinstance(head, MLDecoder)
    torch.testing.assert_close(head(tensors["input"]), tensors["logits"], rtol=0, atol=1e-5)
    exact = head.double()(tensors["input"].double())
    torch.testing.assert_close(exact, tensors["logits_float64"], rtol=0, atol=1e-9)


def test_token_input_equals_the_recording() -> None:
    tensors, state = recording("official_full")
    head = head_from_state_dict(state).eval().double()
    exact = head(tensors["input_tokens"].double())
    torch.testing.assert_close(exact, tensors["logits_tokens_float64"], rtol=0, atol=1e-9)


def test_zero_shot_equals_the_recording() -> None:
    tensors, state = recording("official_zero_shot")
    head = head_from_state_dict(state).eval()
    assert isinstance(head, ZeroShotMLDecoder)
    assert head.text_width == 300
    torch.testing.assert_close(head(tensors["input"], tensors["word_vectors"]), tensors["logits"], rtol=0, atol=1e-5)
    exact = head.double()(tensors["input"].double(), tensors["word_vectors"].double())
    torch.testing.assert_close(exact, tensors["logits_float64"], rtol=0, atol=1e-9)


def test_gradients_equal_the_recording() -> None:
    tensors, state = recording("official_grouped")
    head = head_from_state_dict(state).eval()
    (head(tensors["input"]) * tensors["grad_weights"]).sum().backward()
    gradients = {name: parameter.grad for name, parameter in head.named_parameters()}
    recorded = {key.removeprefix("grad."): value for key, value in tensors.items() if key.startswith("grad.")}
    in_proj = recorded["decoder.layers.0.multihead_attn.in_proj_weight"]
    width = in_proj.shape[1]
    pairs = {
        "decoder.embed.weight": recorded["decoder.embed_standart.weight"],
        "decoder.embed.bias": recorded["decoder.embed_standart.bias"],
        "decoder.layers.0.attention.query.weight": in_proj[:width],
        "decoder.layers.0.attention.key_value.weight": in_proj[width:],
        "decoder.layers.0.attention.out.weight": recorded["decoder.layers.0.multihead_attn.out_proj.weight"],
        "decoder.layers.0.linear1.weight": recorded["decoder.layers.0.linear1.weight"],
        "decoder.layers.0.linear2.weight": recorded["decoder.layers.0.linear2.weight"],
        "decoder.layers.0.norm1.weight": recorded["decoder.layers.0.norm1.weight"],
        "decoder.layers.0.norm3.bias": recorded["decoder.layers.0.norm3.bias"],
        "classify.weight": recorded["decoder.duplicate_pooling"],
        "classify.bias": recorded["decoder.duplicate_pooling_bias"],
    }
    for name, expected in pairs.items():
        torch.testing.assert_close(gradients[name], expected, rtol=1e-4, atol=1e-5)


def test_sizes_are_told_from_the_tensors_alone() -> None:
    _, state = recording("official_grouped_sparse")
    head = head_from_state_dict({f"module.fc.{key}": value for key, value in state.items()} | {"body.x": torch.ones(1)})
    assert isinstance(head, MLDecoder)
    assert (head.num_classes, head.num_queries, head.in_features) == (101, 100, 24)
    assert len(head.classify.query_of_class.unique()) == 51  # the public layout leaves 49 queries idle
