"""The loss over a layer that is split over processes, against the plain head and the dense loss on one process."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed import ProcessGroup

from mldecoder.errors import InputError
from mldecoder.heads import GroupLinear
from mldecoder.heads.ranks import Ranks
from mldecoder.heads.split import SplitGroupLinear
from mldecoder.losses import SparseTargets, build
from mldecoder.losses.gathered_targets import of_classes
from mldecoder.losses.split import split_loss
from tests.ranks import run

LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("asymmetric", {}),
    ("asymmetric", {"unknown_weight": 0.3, "reduction": "mean"}),
    ("asymmetric", {"reduction": "image_mean"}),
    ("bce", {"label_smoothing": 0.1}),
    ("bce", {"reduction": "mean"}),
    ("focal", {"alpha": 0.25, "reduction": "image_mean", "unknown_weight": 0.2}),
]


def whole_layer(n: int, k: int, seed: int, layout: str) -> GroupLinear:
    g = torch.Generator().manual_seed(seed)
    layer = GroupLinear(n, k, 4, groups="random", layout=layout, seed=seed).double()  # type: ignore[arg-type]
    with torch.no_grad():
        layer.weight.normal_(generator=g)
        layer.bias.normal_(generator=g)
    return layer


def one_process(
    rank: int, group: ProcessGroup, case: dict[str, Any], x: list[Tensor], targets: list[Tensor], form: str
) -> list[Tensor]:
    """Loss, gradients of x, weight and bias, and the classes they belong to."""
    whole = GroupLinear(case["n"], case["k"], 4, groups="random", layout=case["layout"], seed=case["seed"]).double()
    whole.load_state_dict(case["state"])
    layer = SplitGroupLinear.of(whole, Ranks(group))
    mine = x[rank].requires_grad_()
    told: SparseTargets | Tensor = targets[rank]
    if form != "dense":
        told = SparseTargets.from_dense(targets[rank], default=0 if form == "default negative" else -1)
    weights = {key: case[key] for key in ("class_weights",)}
    if case["sample_weights"] is not None:
        weights["sample_weights"] = case["sample_weights"][rank]
    kind, options = case["loss"]
    loss = split_loss(mine, layer, told, kind=kind, options=options, chunk=case["chunk"], averaged=False, **weights)
    gradients = torch.autograd.grad(2.5 * loss, (mine, layer.share.weight, layer.share.bias))
    return [loss.detach(), *gradients, layer.share.classes]


@settings(max_examples=40)
@given(
    world=st.integers(1, 4),
    n=st.integers(1, 30),
    loss=st.sampled_from(LOSSES),
    form=st.sampled_from(["dense", "default negative", "default unknown"]),
    layout=st.sampled_from(["balanced", "ceil"]),
    chunk=st.sampled_from([None, 1, 5]),
    weights=st.booleans(),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_loss_and_gradients_equal_one_process(
    world: int,
    n: int,
    loss: tuple[str, dict[str, Any]],
    form: str,
    layout: str,
    chunk: int | None,
    weights: bool,
    seed: int,
    data: st.DataObject,
) -> None:
    k = data.draw(st.integers(1, n))
    images = data.draw(st.lists(st.integers(0, 3), min_size=world, max_size=world))
    g = torch.Generator().manual_seed(seed)
    whole, total = whole_layer(n, k, seed, layout), sum(images)
    x = torch.randn(total, k, 4, generator=g, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(-1, 2, (total, n), generator=g)
    sample = torch.rand(total, generator=g, dtype=torch.float64) if weights else None
    classes = torch.rand(n, generator=g, dtype=torch.float64) if weights else None
    twin = build(*loss)(whole(x), targets, sample_weights=sample, class_weights=classes)
    grad_x, grad_weight, grad_bias = torch.autograd.grad(2.5 * twin, (x, whole.weight, whole.bias))
    case = {"n": n, "k": k, "layout": layout, "seed": seed, "loss": loss, "chunk": chunk, "class_weights": classes}
    case |= {"state": whole.state_dict(), "sample_weights": None if sample is None else sample.split(images)}
    parts = [part.detach().clone() for part in x.split(images)]
    answers = run(world, one_process, case, parts, list(targets.split(images)), form)
    for value, *_ in answers:
        torch.testing.assert_close(value, twin.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(torch.cat([answer[1] for answer in answers]), grad_x, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(torch.cat([answer[2] for answer in answers]), grad_weight, rtol=1e-10, atol=1e-12)
    for *_, bias, own in answers:
        torch.testing.assert_close(bias, grad_bias[own], rtol=1e-10, atol=1e-12)


@given(n=st.integers(1, 20), b=st.integers(0, 4), default=st.sampled_from([0, -1]), data=st.data())
def test_targets_of_some_classes_are_those_columns(n: int, b: int, default: int, data: st.DataObject) -> None:
    dense = torch.randint(-1, 2, (b, n), generator=torch.Generator().manual_seed(n), dtype=torch.int8)
    own = torch.tensor(sorted(data.draw(st.sets(st.integers(0, n - 1)))), dtype=torch.long)
    some = of_classes(SparseTargets.from_dense(dense, default=default), own)
    assert torch.equal(some.to_dense(), dense[:, own])


def mixed_and_unmixed(rank: int, group: ProcessGroup) -> Tensor:
    torch.manual_seed(0)
    layer = SplitGroupLinear(9, 4, 3, ranks=Ranks(group)).double()
    x = torch.ones(1, 4, 3, dtype=torch.float64)
    targets = torch.zeros(1, 9, dtype=torch.float32 if rank else torch.int8)
    targets[0, 5] = 0.25 if rank else 1
    return split_loss(x, layer, targets).detach()


def test_soft_targets_of_one_process_stay_soft() -> None:
    first, second = run(2, mixed_and_unmixed)
    layer = SplitGroupLinear(9, 4, 3).double()
    targets = torch.zeros(2, 9)
    targets[0, 5], targets[1, 5] = 1, 0.25
    alone = split_loss(torch.ones(2, 4, 3, dtype=torch.float64), layer, targets)
    torch.testing.assert_close(first, alone.detach())
    torch.testing.assert_close(second, alone.detach())


def in_half_precision(rank: int, group: ProcessGroup, whole: GroupLinear, x: Tensor, targets: Tensor) -> list[Tensor]:
    layer = SplitGroupLinear.of(whole, Ranks(group))
    mine = x[rank::2].clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = split_loss(mine, layer, targets[rank::2], averaged=False)
    loss.backward()  # type: ignore[no-untyped-call]
    assert mine.grad is not None
    assert layer.share.weight.grad is not None
    return [loss.detach(), mine.grad, layer.share.weight.grad]


def test_autocast_travels_in_half_precision_and_stays_near() -> None:
    whole, x = GroupLinear(60, 5, 16, groups="random"), torch.randn(6, 5, 16).bfloat16()
    targets = (torch.rand(6, 60) < 0.1).long()
    (loss, first, upper), (_, second, lower) = run(2, in_half_precision, whole, x, targets)
    exact = x.float().requires_grad_()
    twin = build("asymmetric")(whole(exact), targets)
    twin.backward()  # type: ignore[no-untyped-call]
    assert first.dtype == torch.bfloat16
    torch.testing.assert_close(loss, twin.detach(), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(torch.cat([upper, lower]), whole.weight.grad, rtol=3e-2, atol=3e-2)
    for mine, rank in ((first, 0), (second, 1)):
        assert exact.grad is not None
        torch.testing.assert_close(mine.float(), exact.grad[rank::2], rtol=3e-2, atol=3e-2)


def test_what_does_not_fit_together_is_refused() -> None:
    layer = SplitGroupLinear(6, 2, 3)
    with pytest.raises(InputError, match="targets must be of 1 images and 6 classes"):
        split_loss(torch.zeros(1, 2, 3), layer, torch.zeros(1, 5))
    with pytest.raises(InputError, match="x must have the shape"):
        split_loss(torch.zeros(1, 3, 3), layer, torch.zeros(1, 6))
    with pytest.raises(InputError, match=r"one default, got classes \[6, 6\] and defaults \[0, -1\]"):
        raise run(2, other_defaults)[0]


def other_defaults(rank: int, group: ProcessGroup) -> Exception:
    layer = SplitGroupLinear(6, 2, 3, ranks=Ranks(group))
    targets = SparseTargets.from_lists([[1]], num_classes=6, default=-rank)
    with pytest.raises(InputError) as caught:
        split_loss(torch.zeros(1, 2, 3), layer, targets)
    return caught.value
