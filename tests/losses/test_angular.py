"""The angular-margin loss against a loop written from its formula."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mldecoder import losses
from mldecoder.errors import ConfigError
from mldecoder.heads import MLDecoderPlus
from mldecoder.heads.plus_options import PlusOptions
from mldecoder.losses import angular_loss, binary_cross_entropy


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def slow(cosine: float, y: float, *, s: float, m: float, k: float, gamma_neg: float, gamma_pos: float) -> float:
    """One entry, as arXiv:2209.06585 writes it, times s."""
    p_pos, p_neg = sigmoid(s * (cosine - m)), sigmoid(-s * (cosine + m))
    positive = k / s * y * p_neg**gamma_pos * math.log(p_pos)
    negative = (1 - k) / s * (1 - y) * p_pos**gamma_neg * math.log(p_neg)
    return float(-(positive + negative) * s)


def batch(b: int, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Cosines, and targets that are 0, 1, 0.3 or unknown."""
    g = torch.Generator().manual_seed(seed)
    cosines = torch.rand(b, n, generator=g, dtype=torch.float64) * 2 - 1
    choices = torch.tensor([0.0, 1.0, 0.3, -1.0], dtype=torch.float64)
    return cosines, choices[torch.randint(4, (b, n), generator=g)]


@given(
    b=st.integers(1, 5),
    n=st.integers(1, 8),
    seed=st.integers(0, 999),
    s=st.sampled_from([1.0, 17.0]),
    m=st.sampled_from([0.0, 0.2, -0.1]),
    k=st.sampled_from([0.2, 0.7]),
    gamma_neg=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    gamma_pos=st.sampled_from([0.0, 1.0]),
)
def test_it_equals_the_loop_from_its_formula(
    b: int, n: int, seed: int, s: float, m: float, k: float, gamma_neg: float, gamma_pos: float
) -> None:
    cosines, targets = batch(b, n, seed)
    expected = sum(
        slow(c, y, s=s, m=m, k=k, gamma_neg=gamma_neg, gamma_pos=gamma_pos)
        for c, y in zip(cosines.flatten().tolist(), targets.flatten().tolist(), strict=True)
        if y >= 0
    )
    found = angular_loss(s * cosines, targets, margin=s * m, balance=k, gamma_neg=gamma_neg, gamma_pos=gamma_pos)
    assert found.item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_without_margin_and_focus_it_is_half_of_binary_cross_entropy() -> None:
    cosines, targets = batch(4, 6, 0)
    found = angular_loss(cosines, targets, balance=0.5, gamma_neg=0.0)
    torch.testing.assert_close(found, binary_cross_entropy(cosines, targets, reduction="sum") / 2)


@given(x=st.floats(-8, 8), margin=st.floats(0.1, 3))
def test_a_margin_asks_for_more(x: float, margin: float) -> None:
    for y in (0, 1):
        logits, targets = torch.tensor([[x]], dtype=torch.float64), torch.tensor([[y]])
        without = angular_loss(logits, targets, gamma_neg=0.0)
        assert angular_loss(logits, targets, gamma_neg=0.0, margin=margin) > without


@pytest.mark.parametrize("size", [1e2, 1e4, 1e30])
def test_far_logits_keep_a_finite_loss_and_gradient(size: float) -> None:
    logits = torch.tensor([[size, -size, size, -size]], requires_grad=True)
    loss = angular_loss(logits, torch.tensor([[1, 0, 0, 1]]), margin=2.0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2] > 0.25  # a wrong one is pushed back, however far it is
    assert logits.grad[0, 3] < -0.65


def test_unknown_entries_cost_nothing_and_get_no_gradient() -> None:
    logits = torch.tensor([[torch.nan, 1.0]], requires_grad=True)
    angular_loss(logits, torch.tensor([[-1, 1]])).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad[0, 0] == 0


def test_half_precision_logits_are_raised() -> None:
    logits, targets = torch.randn(3, 4), torch.randint(0, 2, (3, 4))
    assert angular_loss(logits.bfloat16(), targets).dtype == torch.float32


def test_focusing_weights_may_be_left_out_of_the_gradient() -> None:
    logits = torch.tensor([[0.3]], dtype=torch.float64, requires_grad=True)
    angular_loss(logits, torch.tensor([[0]]), focal_grad=False, balance=0.5).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.item() == pytest.approx(0.5 * sigmoid(0.3) ** 2)


def test_recipes_build_it_and_wrong_values_say_what_is_right() -> None:
    loss = losses.build("angular", {"margin": "1e-1"})
    assert loss(torch.zeros(1, 2), torch.tensor([[1, 0]])).ndim == 0
    with pytest.raises(ConfigError, match="balance must be above 0 and below 1, got 1"):
        losses.build("angular", {"balance": 1})
    with pytest.raises(ConfigError, match="margin must be a finite number"):
        losses.build("angular", {"margin": float("inf")})
    with pytest.raises(ConfigError, match="gamma_neg must be at least 0"):
        losses.build("angular", {"gamma_neg": -1})


def test_with_the_cosine_head_its_logits_are_scaled_cosines() -> None:
    head = MLDecoderPlus(
        5, 6, options=PlusOptions(cosine=True), num_queries=2, width=8, ff_width=8, heads=2, groups="ordered"
    ).eval()
    x = torch.randn(3, 6, 2, 2)
    assert head.scale is not None
    decoded, weight = head.decode(x), head.classify.weight
    column = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    cosines = [torch.cosine_similarity(decoded[:, q], weight[q, :, j].unsqueeze(0)) for q, j in column]
    torch.testing.assert_close(head(x), head.scale * torch.stack(cosines, dim=1), rtol=1e-4, atol=1e-4)
