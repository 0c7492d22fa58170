"""What docs/how-it-works.md says is checked."""

import re
from collections.abc import Callable
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from mldecoder.heads import MLDecoder
from mldecoder.heads.groups import group_sizes

PAGE = (Path(__file__).parent.parent / "docs" / "how-it-works.md").read_text(encoding="utf-8")


def code_of_the_page() -> Callable[[Tensor, MLDecoder], Tensor]:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, Callable[[Tensor, MLDecoder], Tensor]] = {}
    exec(block, names)
    return names["plain_ml_decoder"]


@given(n=st.integers(1, 12), t=st.integers(1, 9), data=st.data())
def test_the_code_of_the_page_computes_the_head(n: int, t: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    head = MLDecoder(n, 6, num_queries=k, width=16, ff_width=12).double().eval()
    for parameter in head.parameters():  # norms and biases start at ones and zeros, which would hide mistakes
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(2, t, 6, dtype=torch.double)
    plain = code_of_the_page()
    torch.testing.assert_close(head(x), torch.stack([plain(one, head) for one in x]))


def reach(num_queries: int, width: int) -> float:
    """How far from arbitrary wanted vectors the best projection of fixed queries stays, at most."""
    head = MLDecoder(num_queries, 4, num_queries=num_queries, width=width, heads=1).double()
    q = head.decoder.first_layer.norm1(2 * head.queries).detach()
    q = torch.cat([q, torch.ones(num_queries, 1, dtype=torch.double)], dim=1)  # the bias of the projection
    wanted = torch.randn(num_queries, width, dtype=torch.double)
    best = torch.linalg.lstsq(q, wanted, driver="gelsd").solution
    return float((q @ best - wanted).abs().max())


def test_a_projection_takes_fixed_queries_anywhere_as_long_as_they_are_no_more_than_the_width() -> None:
    assert reach(100, 768) < 1e-9
    assert reach(32, 32) < 1e-6
    assert reach(40, 32) > 0.1


def test_the_groups_are_as_the_drawings_say() -> None:
    assert group_sizes(10, 3).tolist() == [4, 3, 3]
    assert group_sizes(9, 6, "ceil").tolist() == [2, 2, 2, 2, 1, 0]
    assert group_sizes(9, 6).tolist() == [2, 2, 2, 1, 1, 1]
    assert int((group_sizes(101, 100, "ceil") > 0).sum()) == 51
