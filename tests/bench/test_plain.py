import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mldecoder.bench.plain import PlainMLDecoder
from mldecoder.heads import MLDecoder


@settings(max_examples=25)
@given(n=st.integers(1, 40), depth=st.integers(1, 2), data=st.data())
def test_the_plain_head_gives_the_logits_of_the_fast_one(n: int, depth: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    head = MLDecoder(n, 6, num_queries=k, width=16, ff_width=24, heads=4, depth=depth).double().eval()
    plain = PlainMLDecoder.from_head(head)
    x = torch.randn(2, 6, 3, 2, dtype=torch.float64)
    torch.testing.assert_close(plain(x), head(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{"queries": "learnable"}, {"groups": "ordered"}, {"group_layout": "ceil"}])
def test_every_kind_of_head_has_a_plain_twin(options: dict[str, str]) -> None:
    head = MLDecoder(23, 6, num_queries=5, width=16, ff_width=24, heads=2, **options).double().eval()  # type: ignore[arg-type]
    x = torch.randn(2, 6, 3, 2, dtype=torch.float64)
    torch.testing.assert_close(PlainMLDecoder.from_head(head)(x), head(x), rtol=1e-10, atol=1e-12)


def test_word_vectors_for_queries_are_projected_as_in_the_fast_head() -> None:
    head = MLDecoder(23, 6, queries=torch.randn(5, 9), width=16, ff_width=24, heads=2).double().eval()
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(PlainMLDecoder.from_head(head)(x), head(x), rtol=1e-10, atol=1e-12)


def test_gradients_agree_as_well() -> None:
    head = MLDecoder(12, 6, num_queries=5, width=16, ff_width=24, heads=2, dropout=0.0).double().train()
    plain = PlainMLDecoder.from_head(head)
    assert plain.training
    x, gradient = torch.randn(2, 6, 3, 2, dtype=torch.float64), torch.randn(2, 12, dtype=torch.float64)

    def gradients(model: torch.nn.Module, weight: Tensor) -> tuple[Tensor, ...]:
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(model(leaf), (leaf, weight), gradient)

    expected = gradients(head, head.classify.weight)
    torch.testing.assert_close(gradients(plain, plain.group_weights), expected, rtol=1e-9, atol=1e-12)


def test_the_groups_of_a_new_plain_head_are_those_of_the_pseudo_code() -> None:
    plain = PlainMLDecoder(7, 6, num_queries=3, width=8, ff_width=8, heads=2).eval()
    with torch.no_grad():
        plain.group_weights.zero_()
        plain.group_weights[1] = 1.0  # group size 3: query 1 owns the classes 3, 4 and 5
        plain.layers[0].norm3.bias.fill_(1.0)  # type: ignore[union-attr,operator]
    logits = plain(torch.randn(2, 6, 2, 2))
    assert (logits.abs() > 1e-3).tolist() == [[False] * 3 + [True] * 3 + [False]] * 2
