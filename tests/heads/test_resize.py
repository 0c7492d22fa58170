import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mldecoder.errors import ConfigError
from mldecoder.heads import GlobalAveragePool, MLDecoder, TransformerDecoder, with_classes


@given(data=st.data())
def test_kept_classes_keep_their_logits(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    k = data.draw(st.integers(1, n))
    source = data.draw(st.lists(st.one_of(st.none(), st.integers(0, n - 1)), min_size=1, max_size=15))
    heads: list[nn.Module] = [GlobalAveragePool(n, 5), MLDecoder(n, 5, num_queries=k, width=8, ff_width=8, heads=2)]
    x = torch.randn(2, 4, 5)
    for head in heads:
        head.eval()
        before, after = head(x), with_classes(head, source)(x)
        assert after.shape == (2, len(source))
        for new, old in enumerate(source):
            if old is not None:
                torch.testing.assert_close(after[:, new], before[:, old])


def test_full_decoding_stays_full_and_groups_keep_their_cost() -> None:
    full = MLDecoder(4, 5, num_queries=4, width=8, heads=2)
    assert with_classes(full, [0, 1, 2, 3, None, None]).num_queries == 6
    grouped = MLDecoder(8, 5, num_queries=4, width=8, heads=2)
    larger = with_classes(grouped, [*range(8), None, None])
    assert larger.num_queries == 4
    assert isinstance(larger, MLDecoder)
    assert torch.bincount(larger.classify.query_of_class).max() == 3


def test_a_query_without_a_class_goes() -> None:
    head = MLDecoder(4, 5, num_queries=4, width=8, heads=2, groups="ordered").eval()
    smaller = with_classes(head, [3, 1])
    assert isinstance(smaller, MLDecoder)
    assert smaller.num_queries == 2
    assert torch.equal(smaller.queries, head.queries[[1, 3]])


def test_learnable_queries_stay_learnable() -> None:
    head = TransformerDecoder(3, 5, width=8, heads=2, ff_width=8)
    larger = with_classes(head, [0, 1, 2, None])
    larger(torch.randn(1, 4, 5)).sum().backward()
    assert larger.queries.grad is not None  # type: ignore[union-attr]


def test_no_class_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one class"):
        with_classes(GlobalAveragePool(3, 5), [])
    with pytest.raises(ConfigError, match="heads of this package"):
        with_classes(nn.Linear(3, 3), [0])
