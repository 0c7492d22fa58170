import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.errors import ConfigError
from mldecoder.heads import GroupLinear
from mldecoder.heads.groups import assign, group_sizes, placeholder, slots_of


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 60))
    return n, draw(st.integers(1, n))


@given(nk=sizes(), groups=st.sampled_from(["random", "ordered"]))
def test_balanced_groups_differ_by_at_most_one(nk: tuple[int, int], groups: str) -> None:
    n, k = nk
    counts = torch.bincount(assign(n, k, groups), minlength=k)  # type: ignore[arg-type]
    assert counts.sum() == n
    assert counts.min() >= 1
    assert counts.max() - counts.min() <= 1
    assert sorted(counts.tolist()) == sorted(group_sizes(n, k).tolist())


@given(nk=sizes())
def test_ceil_is_the_public_layout(nk: tuple[int, int]) -> None:
    n, k = nk
    factor = -(-n // k)
    assert assign(n, k, "ordered", layout="ceil").tolist() == [c // factor for c in range(n)]


@given(nk=sizes(), seed=st.integers(0, 5))
def test_slots_are_different_and_belong_to_their_query(nk: tuple[int, int], seed: int) -> None:
    n, k = nk
    query = assign(n, k, "random", seed=seed)
    slots, size = slots_of(query)
    assert len(slots.unique()) == n
    assert torch.equal(slots // size, query)
    assert size == -(-n // k)


@given(nk=sizes(), data=st.data())
def test_group_linear_reads_each_class_from_its_own_query(nk: tuple[int, int], data: st.DataObject) -> None:
    n, k = nk
    groups = data.draw(st.sampled_from(["random", "ordered"]))
    layer = GroupLinear(n, k, 4, groups=groups, seed=3).double()  # type: ignore[arg-type]
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(2, k, 4, dtype=torch.double)
    slow = []
    for c in range(n):
        q, j = divmod(int(layer.slots[c]), layer.group_size)
        slow.append(x[:, q] @ layer.weight[q, :, j] + layer.bias[c])
    torch.testing.assert_close(layer(x), torch.stack(slow, dim=1))


@given(nk=sizes(), data=st.data())
def test_a_placeholder_has_the_wished_group_size(nk: tuple[int, int], data: st.DataObject) -> None:
    n, k = nk
    size = n if k == 1 else data.draw(st.integers(-(-n // k), n - k + 1))
    groups = placeholder(n, k, size)
    assert slots_of(groups)[1] == size
    assert len(groups.unique()) == k


def test_given_groups_are_taken_over() -> None:
    groups = torch.tensor([2, 0, 0, 1, 0])
    layer = GroupLinear(5, 3, 4, groups=groups)
    assert torch.equal(layer.query_of_class, groups)
    assert layer.group_size == 3


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (torch.tensor([0, 1]), "one query number per class"),
        (torch.tensor([0.0, 1.0, 2.0]), "integer"),
        (torch.tensor([0, 0, 0]), "at least once"),
        (torch.tensor([0, 1, 3]), "at least once"),
        (torch.tensor([0, 1, -1]), "at least once"),
        ("alphabetical", "random"),
    ],
)
def test_groups_that_cannot_work_are_refused(groups: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GroupLinear(3, 3, 4, groups=groups)  # type: ignore[arg-type]


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(ConfigError, match="balanced"):
        GroupLinear(3, 3, 4, layout="floor")  # type: ignore[arg-type]


def test_loading_another_assignment_changes_the_order() -> None:
    ordered, mixed = GroupLinear(6, 3, 4), GroupLinear(6, 3, 4, groups="random", seed=1)
    ordered.load_state_dict(mixed.state_dict())
    x = torch.randn(2, 3, 4)
    assert torch.equal(ordered(x), mixed(x))
