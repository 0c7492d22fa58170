"""New labels scored by the trained labels nearest to them."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mldecoder.heads import neighbours
from mldecoder.heads.neighbours import COUNT, Neighbours, nearest


def by_hand(own: Tensor, vectors: Tensor, theirs: Tensor, anchors: Tensor, share: float, temperature: float) -> Tensor:
    """One label at a time, in plain words."""
    mean, columns = anchors.mean(dim=0), []
    for i, vector in enumerate(vectors):
        if any(torch.equal(vector, anchor) for anchor in anchors):
            columns.append(own[:, i])
            continue
        cosines = torch.stack([torch.cosine_similarity(vector - mean, anchor - mean, dim=0) for anchor in anchors])
        best = cosines.argsort(descending=True)[:COUNT]
        weights = (cosines[best] / temperature).softmax(dim=0)
        columns.append((1 - share) * own[:, i] + share * theirs[:, best] @ weights)
    return torch.stack(columns, dim=1)


@given(n=st.integers(1, 6), m=st.integers(2, 12), share=st.sampled_from([0.3, 1.0]), temperature=st.floats(0.02, 1.0))
def test_a_new_label_takes_a_share_of_its_nearest_trained_labels(
    n: int, m: int, share: float, temperature: float
) -> None:
    torch.manual_seed(n + 7 * m)
    anchors = torch.randn(m, 5, dtype=torch.float64)
    vectors = torch.cat([torch.randn(n, 5, dtype=torch.float64), anchors[:1]])
    own, theirs = torch.randn(3, n + 1, dtype=torch.float64), torch.randn(3, m, dtype=torch.float64)
    mixed = Neighbours(anchors, share=share, temperature=temperature)(own, vectors, theirs)
    torch.testing.assert_close(mixed, by_hand(own, vectors, theirs, anchors, share, temperature))


def test_trained_labels_keep_their_scores_in_half_precision_too() -> None:
    torch.manual_seed(0)
    anchors = torch.randn(9, 40).to(torch.bfloat16)
    own, theirs = torch.randn(2, 9), torch.randn(2, 9)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(Neighbours(anchors, share=0.7, temperature=0.02)(own, anchors, theirs), own)


def test_many_labels_are_compared_in_blocks() -> None:
    torch.manual_seed(0)
    anchors, vectors = torch.randn(9, 4), torch.randn(25, 4)
    whole = nearest(vectors, anchors, 0.1)
    block, neighbours.BLOCK = neighbours.BLOCK, 10
    try:
        parts = Neighbours(anchors, share=1.0, temperature=0.1)._nearest(vectors)
    finally:
        neighbours.BLOCK = block
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)
