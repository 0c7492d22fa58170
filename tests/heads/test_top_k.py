"""The best classes block by block against topk of all logits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tools.live_bytes import LiveBytes

from mldecoder.errors import ConfigError, InputError
from mldecoder.heads import GroupLinear
from mldecoder.heads.top_k import top_k


def layer_of(n: int, k: int, d: int, *, uneven: bool = False) -> GroupLinear:
    """Whole numbers everywhere, so that no order of adding rounds, and many logits are equal."""
    groups = torch.cat([torch.arange(k), torch.zeros(n - k, dtype=torch.long)]) if uneven else "random"
    layer = GroupLinear(n, k, d, groups=groups)  # type: ignore[arg-type]
    with torch.no_grad():
        layer.weight.copy_(torch.randint(-3, 4, layer.weight.shape))
        layer.bias.copy_(torch.randint(-3, 4, layer.bias.shape))
    return layer


@given(
    n=st.integers(1, 60),
    b=st.integers(0, 4),
    d=st.integers(1, 5),
    chunk=st.sampled_from([None, 1, 2, 5, 16, 1000]),
    uneven=st.booleans(),
    data=st.data(),
)
def test_it_equals_topk_of_all_logits(
    n: int, b: int, d: int, chunk: int | None, uneven: bool, data: st.DataObject
) -> None:
    layer = layer_of(n, data.draw(st.integers(1, n)), d, uneven=uneven)
    count = data.draw(st.integers(1, n))
    x = torch.randint(-3, 4, (b, layer.num_queries, d)).float()
    logits = layer(x)
    values, classes = top_k(x, layer, count, chunk=chunk)
    twin = logits.topk(count)
    assert torch.equal(values, twin.values)
    assert torch.equal(logits.gather(1, classes), values)  # equal logits may change places; each class has its value
    for row in classes:
        assert len(row.unique()) == count
    above = values > values[:, -1:]  # below a tie at the end the choice is free
    for mine, other, sure in zip(classes, twin.indices, above, strict=True):
        assert set(mine[sure].tolist()) == set(other[sure].tolist())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_random_logits_are_found_exactly(precision: torch.dtype) -> None:
    layer, x = GroupLinear(500, 20, 16, groups="random"), torch.randn(3, 20, 16)
    torch.nn.init.normal_(layer.bias)
    with torch.autocast("cpu", precision, enabled=precision != torch.float32), torch.no_grad():
        twin = layer(x).topk(7)
        values, classes = top_k(x, layer, 7, chunk=75)
    assert values.dtype == twin.values.dtype
    torch.testing.assert_close(values, twin.values, rtol=1e-6, atol=1e-6)
    if precision == torch.float32:
        assert torch.equal(classes, twin.indices)


def test_only_a_block_of_logits_exists_at_a_time() -> None:
    layer, x = GroupLinear(6000, 30, 2), torch.randn(40, 30, 2)
    with LiveBytes() as count:
        top_k(x, layer, 5, chunk=400)
    assert count.largest == 400 * 40
    assert count.peak < 5 * 4 * 400 * 40 + 8 * 4 * 6000


def test_what_cannot_be_asked_is_refused() -> None:
    layer = GroupLinear(6, 2, 3)
    with pytest.raises(ConfigError, match="count must be between 1 and the 6 classes, got 7"):
        top_k(torch.zeros(1, 2, 3), layer, 7)
    with pytest.raises(InputError, match="x must have the shape"):
        top_k(torch.zeros(1, 3, 3), layer, 1)
