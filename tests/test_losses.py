"""Losses against loops written from their formulas, and their gradients against float64."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mldecoder import losses
from mldecoder.errors import ConfigError, InputError
from mldecoder.losses import asymmetric_loss, binary_cross_entropy, focal_loss, softmax_cross_entropy

quick = settings(deadline=None, max_examples=40)

SIGMOID_LOSSES: list[Callable[..., Tensor]] = [asymmetric_loss, binary_cross_entropy, focal_loss]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def slow_asl(x: float, y: float, gamma_neg: float, gamma_pos: float, clip: float) -> float:
    p = sigmoid(x)
    shifted = max(p - clip, 0.0)
    positive = (1 - p) ** gamma_pos * math.log(p)
    negative = shifted**gamma_neg * math.log(1 - shifted)
    return float(-(y * positive + (1 - y) * negative))


def batch(b: int, n: int, seed: int, *, unknown: bool = True, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(b, n, generator=g, dtype=torch.float64)
    return logits, torch.randint(-1 if unknown else 0, 2, (b, n), generator=g)


def gradient(loss: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach().clone().requires_grad_()
    loss(x).backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    return x.grad


sizes = {"b": st.integers(1, 6), "n": st.integers(1, 9), "seed": st.integers(0, 999)}


@quick
@given(
    **sizes,
    gamma_neg=st.sampled_from([0.0, 0.5, 1.0, 4.0, 7.0]),
    gamma_pos=st.sampled_from([0.0, 0.5, 1.0]),
    clip=st.sampled_from([0.0, 0.05, 0.6]),
)
def test_asl_equals_the_loop_from_its_formula(
    b: int, n: int, seed: int, gamma_neg: float, gamma_pos: float, clip: float
) -> None:
    logits, targets = batch(b, n, seed)
    slow = sum(
        slow_asl(logits[i, j].item(), targets[i, j].item(), gamma_neg, gamma_pos, clip)
        for i in range(b)
        for j in range(n)
        if targets[i, j] >= 0
    )
    fast = asymmetric_loss(logits, targets, gamma_neg=gamma_neg, gamma_pos=gamma_pos, clip=clip)
    assert fast.item() == pytest.approx(slow, rel=1e-11, abs=1e-12)


@quick
@given(**sizes, gamma=st.sampled_from([0.0, 0.5, 2.0]), alpha=st.sampled_from([None, 0.25, 1.0]))
def test_focal_equals_the_loop_from_its_formula(b: int, n: int, seed: int, gamma: float, alpha: float | None) -> None:
    logits, targets = batch(b, n, seed)
    for i in range(b):
        for j in range(n):
            p, y = sigmoid(logits[i, j].item()), targets[i, j].item()
            p_t = p if y == 1 else 1 - p
            alpha_t = 1.0 if alpha is None else alpha if y == 1 else 1 - alpha
            slow = 0.0 if y < 0 else -alpha_t * (1 - p_t) ** gamma * math.log(p_t)
            fast = focal_loss(logits, targets, gamma=gamma, alpha=alpha, reduction="none")[i, j].item()
            assert fast == pytest.approx(slow, rel=1e-9, abs=1e-12)


@quick
@given(**sizes, smoothing=st.sampled_from([0.0, 0.1]))
def test_bce_equals_torch_on_soft_targets(b: int, n: int, seed: int, smoothing: float) -> None:
    logits, _ = batch(b, n, seed)
    soft = torch.rand(b, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(
        binary_cross_entropy(logits, soft, label_smoothing=smoothing),
        F.binary_cross_entropy_with_logits(logits, soft * (1 - smoothing) + smoothing / n),
    )


def test_bce_threshold_makes_both_classes_of_a_mixed_image_positive() -> None:
    logits, mixed = torch.randn(1, 3), torch.tensor([[0.7, 0.3, 0.1]])
    torch.testing.assert_close(
        binary_cross_entropy(logits, mixed, target_threshold=0.2),
        binary_cross_entropy(logits, torch.tensor([[1, 1, 0]])),
    )


@quick
@given(**sizes, smoothing=st.sampled_from([0.0, 0.1]))
def test_softmax_equals_torch_on_numbers_and_on_rows(b: int, n: int, seed: int, smoothing: float) -> None:
    logits, _ = batch(b, n, seed)
    numbers = torch.randint(0, n, (b,), generator=torch.Generator().manual_seed(seed))
    expected = F.cross_entropy(logits, numbers, label_smoothing=smoothing)
    fast = softmax_cross_entropy(logits, numbers, label_smoothing=smoothing)
    torch.testing.assert_close(fast, expected)
    rows = F.one_hot(numbers, n)
    torch.testing.assert_close(softmax_cross_entropy(logits, rows, label_smoothing=smoothing), expected)
    soft = torch.softmax(logits.flip(0), dim=1)
    torch.testing.assert_close(
        softmax_cross_entropy(logits, soft, label_smoothing=smoothing),
        F.cross_entropy(logits, soft, label_smoothing=smoothing),
    )


def test_softmax_leaves_out_images_without_a_known_class() -> None:
    logits = torch.randn(4, 3)
    logits[1] = torch.nan
    numbers = torch.tensor([2, -1, 0, -1])
    expected = F.cross_entropy(logits[[0, 2]], numbers[[0, 2]])
    rows = torch.tensor([[0, -1, 1], [-1, -1, -1], [1, -1, -1], [0, -1, 0]])
    for targets in (numbers, rows):
        torch.testing.assert_close(softmax_cross_entropy(logits, targets, label_smoothing=0.0), expected)
        each = gradient(lambda x, t=targets: softmax_cross_entropy(x, t, label_smoothing=0.1), logits)  # type: ignore[misc]
        assert (each[[1, 3]] == 0).all()
        assert (each[[0, 2]] != 0).all()


def test_soft_targets_mix_the_cost_of_a_positive_and_of_a_negative() -> None:
    x = torch.tensor([[-1.0, 2.0]])
    for loss in SIGMOID_LOSSES:
        positive, negative = loss(x, torch.ones(1, 2)), loss(x, torch.zeros(1, 2))
        torch.testing.assert_close(loss(x, torch.full((1, 2), 0.3)), 0.3 * positive + 0.7 * negative)


@pytest.mark.parametrize("focal_grad", [False, True])
@pytest.mark.parametrize(("gamma_neg", "gamma_pos", "clip"), [(4, 0, 0.05), (0.5, 0.5, 0.05), (4, 1, 0), (7, 0, 0.3)])
def test_asl_gradient_is_that_of_the_formula(focal_grad: bool, gamma_neg: float, gamma_pos: float, clip: float) -> None:
    logits, targets = batch(5, 7, 3, unknown=False)

    def literal(x: Tensor) -> Tensor:
        p = x.sigmoid()
        shifted = (p - clip).clamp(min=1e-300)
        weights = (1 - p) ** gamma_pos, shifted**gamma_neg
        w_pos, w_neg = weights if focal_grad else (weights[0].detach(), weights[1].detach())
        return -(targets * w_pos * p.log() + (1 - targets) * w_neg * (1 - shifted).log()).sum()

    def ours(x: Tensor) -> Tensor:
        return asymmetric_loss(x, targets, gamma_neg=gamma_neg, gamma_pos=gamma_pos, clip=clip, focal_grad=focal_grad)

    torch.testing.assert_close(gradient(ours, logits), gradient(literal, logits), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient(ours, logits.float()).double(), gradient(literal, logits), rtol=1e-4, atol=1e-6)


def test_gradients_agree_with_finite_differences() -> None:
    logits, targets = batch(3, 5, 11)
    logits.requires_grad_()
    images, classes = torch.rand(3).double(), torch.rand(5).double()

    def check(loss: Callable[[Tensor], Tensor]) -> None:
        assert torch.autograd.gradcheck(loss, (logits,))

    check(
        lambda x: asymmetric_loss(
            x, targets, focal_grad=True, gamma_pos=1.0, sample_weights=images, class_weights=classes
        )
    )
    check(
        lambda x: asymmetric_loss(
            x, targets, gamma_neg=0.0, unknown_weight=0.3, sample_weights=images, class_weights=classes
        )
    )
    check(lambda x: asymmetric_loss(x + 30, targets, gamma_neg=0.0, reduction="mean"))  # on the tangent
    check(lambda x: focal_loss(x, targets, sample_weights=images, class_weights=classes))
    check(lambda x: binary_cross_entropy(x, targets, label_smoothing=0.1, sample_weights=images, class_weights=classes))
    check(
        lambda x: softmax_cross_entropy(x, targets, label_smoothing=0.1, sample_weights=images, class_weights=classes)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("loss", SIGMOID_LOSSES)
def test_hopeless_logits_still_get_their_gradient(loss: Callable[..., Tensor], dtype: torch.dtype) -> None:
    x = torch.tensor([[-200.0, 200.0]], dtype=dtype)
    each = gradient(lambda x: loss(x, torch.tensor([[1, 0]]), reduction="sum"), x)
    assert each.isfinite().all()
    assert each[0, 0] == -1
    assert 0 < each[0, 1] <= 1
    if loss is not asymmetric_loss:  # ASL means its clip to calm the hardest negatives
        assert each[0, 1] == 1


def test_asl_stays_within_rounding_of_its_formula_beyond_the_saturation() -> None:
    zero = torch.zeros(1, 1)
    for x in (15.0, 17.9, 18.1, 25.0, 40.0, 200.0):
        shifted = max(1 / (1 + math.exp(-x)) - 0.05, 0)
        formula = -(shifted**4) * math.log(1 - shifted)
        assert asymmetric_loss(torch.full((1, 1), x), zero).item() == pytest.approx(formula, abs=6e-5, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_computed_in_float32(dtype: torch.dtype) -> None:
    logits, targets = batch(4, 6, 5)
    logits = logits.to(dtype)
    for loss in (*SIGMOID_LOSSES, softmax_cross_entropy):
        value = loss(logits, targets)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), loss(logits.double(), targets), rtol=1e-5, atol=1e-6)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(loss(logits, targets), value)


@pytest.mark.parametrize("loss", SIGMOID_LOSSES)
def test_an_unknown_entry_costs_nothing_and_gets_no_gradient_even_from_nan(
    loss: Callable[..., Tensor],
) -> None:
    x = torch.tensor([[0.3, math.nan, -2.0], [math.inf, 1.0, 200.0]])
    targets = torch.tensor([[1, -1, 0], [-1, 0, -1]])
    known = [loss(x[i : i + 1, j : j + 1], targets[i : i + 1, j : j + 1]) for i, j in ((0, 0), (0, 2), (1, 1))]
    torch.testing.assert_close(loss(x, targets, reduction="sum"), torch.stack(known).sum())
    torch.testing.assert_close(loss(x, targets, reduction="mean"), torch.stack(known).mean())
    torch.testing.assert_close(loss(x, targets, reduction="image_mean"), torch.stack(known).sum() / 2)
    each = gradient(lambda x: loss(x, targets, reduction="sum"), x)
    assert (each[targets < 0] == 0).all()
    assert each.isfinite().all()


@pytest.mark.parametrize("loss", SIGMOID_LOSSES)
def test_untagged_labels_can_be_negatives_of_reduced_weight(loss: Callable[..., Tensor]) -> None:
    logits, targets = batch(4, 6, 8)
    as_negatives = loss(logits, targets.clamp(min=0), reduction="none")
    expected = torch.where(targets < 0, 0.2 * as_negatives, as_negatives)
    torch.testing.assert_close(loss(logits, targets, unknown_weight=0.2, reduction="none"), expected)
    torch.testing.assert_close(loss(logits, targets, unknown_weight=0.2, reduction="mean"), expected.mean())


@pytest.mark.parametrize("loss", SIGMOID_LOSSES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float16, torch.float64])
def test_targets_may_be_of_any_type(loss: Callable[..., Tensor], dtype: torch.dtype) -> None:
    logits, targets = batch(3, 4, 2)
    torch.testing.assert_close(loss(logits, targets.to(dtype)), loss(logits, targets))
    torch.testing.assert_close(loss(logits, targets > 0), loss(logits, targets.clamp(min=0)))


@quick
@given(**sizes)
def test_weights_multiply_images_and_classes(b: int, n: int, seed: int) -> None:
    logits, targets = batch(b, n, seed)
    g = torch.Generator().manual_seed(seed)
    images, classes = torch.rand(b, generator=g), torch.rand(n, generator=g)
    for loss in SIGMOID_LOSSES:
        plain = loss(logits, targets, reduction="none")
        weighted = loss(logits, targets, sample_weights=images, class_weights=classes, reduction="none")
        torch.testing.assert_close(weighted, plain * images.double()[:, None] * classes.double())
    soft = logits.softmax(1)
    slow = -(soft * classes.double() * logits.log_softmax(1)).sum(1) * images.double()
    fast = softmax_cross_entropy(logits, soft, sample_weights=images, class_weights=classes, reduction="none")
    torch.testing.assert_close(fast, slow)


def test_a_batch_without_any_known_target_costs_zero() -> None:
    logits, nothing = torch.randn(2, 3), torch.full((2, 3), -1)
    for loss in (*SIGMOID_LOSSES, softmax_cross_entropy):
        for reduction in ("sum", "mean", "image_mean"):
            each = gradient(lambda x, f=loss, r=reduction: f(x, nothing, reduction=r), logits)  # type: ignore[misc]
            assert loss(logits, nothing, reduction=reduction).item() == 0
            assert (each == 0).all()


def test_the_grad_mode_of_the_caller_stays_as_it_was() -> None:
    x, y = torch.randn(2, 3, requires_grad=True), torch.ones(2, 3)
    for focal_grad in (False, True):
        with torch.no_grad():
            assert not asymmetric_loss(x, y, focal_grad=focal_grad).requires_grad
            assert not torch.is_grad_enabled()
        assert asymmetric_loss(x, y, focal_grad=focal_grad).requires_grad
        assert torch.is_grad_enabled()


def test_a_built_loss_is_the_function_with_its_options() -> None:
    logits, targets = batch(3, 4, 1)
    built = losses.build("asymmetric", {"gamma_neg": 7, "clip": "1e-2", "reduction": "mean", "focal_grad": True})
    expected = asymmetric_loss(logits, targets, gamma_neg=7, clip=0.01, reduction="mean", focal_grad=True)
    torch.testing.assert_close(built(logits, targets), expected)
    images = torch.tensor([1.0, 0.0, 2.0])
    torch.testing.assert_close(
        losses.build("bce")(logits, targets, sample_weights=images),
        binary_cross_entropy(logits, targets, sample_weights=images),
    )
    assert losses.build("focal", {"alpha": None})(logits, targets).ndim == 0
    for kind in losses.LOSSES:
        assert losses.build(kind)(logits, targets).ndim == 0


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("asymetric", {}, "Did you mean 'asymmetric'"),
        ("nonsense", {}, "must be one of angular, asymmetric, bce, focal, softmax, got 'nonsense'"),
        ("asymmetric", {"gama_neg": 4}, "Did you mean 'gamma_neg'"),
        ("bce", {"class_weights": 1.0}, "has the options"),
        ("asymmetric", {"gamma_neg": -1}, "gamma_neg must be at least 0 and finite, got -1"),
        ("asymmetric", {"gamma_neg": "four"}, "gamma_neg must be a number, got 'four'"),
        ("asymmetric", {"gamma_neg": True}, "gamma_neg must be a number, got True"),
        ("asymmetric", {"gamma_neg": float("nan")}, "gamma_neg must be at least 0 and finite, got nan"),
        ("asymmetric", {"gamma_neg": "inf"}, "at least 0 and finite, got inf"),
        ("asymmetric", {"clip": 1}, "clip must be at least 0 and below 1, got 1"),
        ("asymmetric", {"focal_grad": "no"}, "focal_grad must be true or false, got 'no'"),
        ("asymmetric", {"reduction": "means"}, "Did you mean 'mean'"),
        ("asymmetric", {"unknown_weight": -0.5}, "unknown_weight must be at least 0"),
        ("bce", {"label_smoothing": 1.5}, "label_smoothing must be"),
        ("softmax", {"label_smoothing": -1}, "label_smoothing must be"),
        ("focal", {"alpha": 2}, "alpha must be between 0 and 1"),
        ("focal", {"gamma": None}, "gamma must be a number, got None"),
    ],
)
def test_a_wrong_recipe_is_refused_in_one_line(
    kind: str, options: dict[str, float | bool | str | None], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        losses.build(kind, options)
    assert "\n" not in str(caught.value)


def test_wrong_shapes_are_refused() -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(InputError, match=r"shape of the logits \(2, 3\), got \(2, 1\)"):
        binary_cross_entropy(x, torch.zeros(2, 1))
    with pytest.raises(InputError, match=r"Only softmax also takes class numbers"):
        asymmetric_loss(x, torch.zeros(2))
    with pytest.raises(InputError, match=r"\(images, classes\), got \(3,\)"):
        focal_loss(x[0], x[0])
    with pytest.raises(InputError, match=r"\(images, classes\), got \(3,\)"):
        softmax_cross_entropy(x[0], torch.tensor([1]))
    with pytest.raises(InputError, match=r"sample_weights must have the shape \(2,\), got \(3,\)"):
        asymmetric_loss(x, x, sample_weights=torch.ones(3))
    with pytest.raises(InputError, match=r"class_weights must have the shape \(3,\), got \(2,\)"):
        softmax_cross_entropy(x, x, class_weights=torch.ones(2))
    with pytest.raises(InputError, match=r"below the 3 classes of the logits, got 3"):
        softmax_cross_entropy(x, torch.tensor([0, 3]))
    with pytest.raises(InputError, match=r"2 class numbers, got 3"):
        softmax_cross_entropy(x, torch.tensor([0, 1, 2]))
    with pytest.raises(InputError, match=r"class numbers, got 2 of torch.float32"):
        softmax_cross_entropy(x, torch.zeros(2))
