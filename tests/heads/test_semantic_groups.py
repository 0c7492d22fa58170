import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.errors import ConfigError
from mldecoder.heads.groups import assign, group_sizes
from mldecoder.heads.semantic_groups import closeness, semantic_groups


@given(n=st.integers(1, 60), data=st.data())
def test_groups_have_the_balanced_sizes_and_use_every_query(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    vectors = torch.randn(n, 5, generator=torch.Generator().manual_seed(n * 100 + k))
    groups = semantic_groups(vectors, k)
    assert torch.bincount(groups, minlength=k).tolist() == group_sizes(n, k).tolist()
    assert torch.equal(groups, semantic_groups(vectors, k))  # nothing is drawn
    assert torch.equal(assign(n, k, groups), groups)


@given(seed=st.integers(0, 1000))
def test_groups_are_closer_than_random_ones(seed: int) -> None:
    vectors = torch.randn(24, 4, generator=torch.Generator().manual_seed(seed))
    assert closeness(vectors, semantic_groups(vectors, 6)) > closeness(vectors, assign(24, 6, "random", seed=seed))


@given(seed=st.integers(0, 300))
def test_few_classes_are_grouped_nearly_as_well_as_by_trying_everything(seed: int) -> None:
    vectors = torch.randn(6, 3, generator=torch.Generator().manual_seed(seed))
    best = max(
        closeness(vectors, torch.tensor([int(i in chosen) for i in range(6)]))
        for chosen in itertools.combinations(range(6), 3)
    )
    assert closeness(vectors, semantic_groups(vectors, 2)) >= 0.8 * best


def test_clear_clusters_are_found_whatever_their_order() -> None:
    generator = torch.Generator().manual_seed(0)
    cluster = torch.arange(40) % 5
    centres = 10 * torch.eye(5)
    order = torch.randperm(40, generator=generator)
    vectors = (centres[cluster] + torch.randn(40, 5, generator=generator))[order]
    groups = semantic_groups(vectors, 5)
    for j in range(5):
        assert len(set(cluster[order][groups == j].tolist())) == 1


def test_equal_vectors_are_dealt_out_all_the_same() -> None:
    assert torch.bincount(semantic_groups(torch.ones(7, 3), 3)).tolist() == [3, 2, 2]
    assert torch.bincount(semantic_groups(torch.zeros(6, 3), 3)).tolist() == [2, 2, 2]


def test_vectors_must_be_one_a_class() -> None:
    with pytest.raises(ConfigError, match=r"one row per class, \(n, e\), got shape \(3,\)"):
        semantic_groups(torch.zeros(3), 2)
