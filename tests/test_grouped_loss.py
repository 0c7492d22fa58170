"""The grouped loss against the dense loss on all logits, and the memory it takes."""

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.live_bytes import LiveBytes
from torch import Tensor

from mldecoder.errors import ConfigError, InputError, TrainingError
from mldecoder.heads import GroupLinear
from mldecoder.losses import SparseTargets, build, grouped, grouped_loss
from mldecoder.losses.block_costs import BlockCosts
from mldecoder.losses.sigmoid import AsymmetricCost

LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("asymmetric", {}),
    ("asymmetric", {"gamma_pos": 1.0, "clip": 0.0, "focal_grad": True, "reduction": "mean"}),
    ("asymmetric", {"unknown_weight": 0.3, "reduction": "image_mean"}),
    ("bce", {}),
    ("bce", {"label_smoothing": 0.1, "target_threshold": 0.5, "reduction": "sum"}),
    ("bce", {"unknown_weight": 0.2}),
    ("focal", {"alpha": 0.25, "reduction": "image_mean"}),
    ("focal", {"focal_grad": False, "unknown_weight": 1.0}),
]


@dataclass
class Case:
    x: Tensor
    layer: GroupLinear
    targets: Tensor  # dense
    sample_weights: Tensor | None = None
    class_weights: Tensor | None = None

    def run(
        self,
        kind: str,
        options: dict[str, Any],
        targets: SparseTargets | Tensor | None,
        *,
        chunk: int | None = None,
        fuse: bool | None = None,
    ) -> list[Tensor]:
        """Loss, and the gradients of x, weight and bias; dense without targets."""
        x = self.x.detach().clone().requires_grad_()
        weights: dict[str, Any] = {"sample_weights": self.sample_weights, "class_weights": self.class_weights}
        if targets is None:
            loss = build(kind, options)(self.layer(x), self.targets, **weights)
        else:
            loss = grouped_loss(x, self.layer, targets, kind=kind, options=options, chunk=chunk, fuse=fuse, **weights)
        gradients = torch.autograd.grad(2.5 * loss, (x, self.layer.weight, self.layer.bias))
        return [loss.detach(), *gradients]


def case(n: int, k: int, b: int, d: int = 5, *, seed: int = 0, weights: bool = False, uneven: bool = False) -> Case:
    g = torch.Generator().manual_seed(seed)
    groups: Tensor | str = "random"
    if uneven:  # the first query takes what the others leave
        groups = torch.cat([torch.arange(k), torch.zeros(n - k, dtype=torch.long)])
    layer = GroupLinear(n, k, d, groups=groups, seed=seed).double()  # type: ignore[arg-type]
    with torch.no_grad():
        layer.weight.normal_(generator=g)
        layer.bias.normal_(generator=g)
    x = torch.randn(b, k, d, generator=g, dtype=torch.float64)
    targets = torch.randint(-1, 2, (b, n), generator=g)
    targets[torch.rand(b, generator=g) < 0.2] = 0  # some images have nothing
    sample, classes = torch.rand(b, generator=g), 2 * torch.rand(n, generator=g)
    return Case(x, layer, targets, sample if weights else None, classes if weights else None)


def check(ours: list[Tensor], twins: list[Tensor], *, rtol: float, atol: float = 1e-12) -> None:
    for mine, twin in zip(ours, twins, strict=True):
        torch.testing.assert_close(mine, twin, rtol=rtol, atol=atol)


@settings(max_examples=120)
@given(
    n=st.integers(1, 40),
    b=st.integers(0, 5),
    chunk=st.sampled_from([None, 1, 2, 3, 7, 16, 1000]),
    loss=st.sampled_from(LOSSES),
    form=st.sampled_from(["dense", "default negative", "default unknown"]),
    weights=st.booleans(),
    uneven=st.booleans(),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_it_equals_the_dense_loss_on_all_logits(
    n: int,
    b: int,
    chunk: int | None,
    loss: tuple[str, dict[str, Any]],
    form: str,
    weights: bool,
    uneven: bool,
    seed: int,
    data: st.DataObject,
) -> None:
    one = case(n, data.draw(st.integers(1, n)), b, seed=seed, weights=weights, uneven=uneven)
    targets: SparseTargets | Tensor = one.targets
    if form != "dense":
        targets = SparseTargets.from_dense(one.targets, default=0 if form == "default negative" else -1)
    twin = one.run(*loss, None)
    check(one.run(*loss, targets, chunk=chunk), twin, rtol=1e-10)
    with torch.no_grad():
        alone = grouped_loss(
            one.x,
            one.layer,
            targets,
            kind=loss[0],
            options=loss[1],
            sample_weights=one.sample_weights,
            class_weights=one.class_weights,
            chunk=chunk,
        )
    check([alone], twin[:1], rtol=1e-10)


@pytest.mark.parametrize(("kind", "options"), LOSSES)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-2)])
def test_lower_precision_stays_near_float64(
    kind: str, options: dict[str, Any], dtype: torch.dtype, limit: float
) -> None:
    one = case(300, 7, 16, 32)
    with torch.no_grad():
        one.layer.weight.mul_(0.2)
    sparse = SparseTargets.from_dense(one.targets)
    with torch.no_grad():  # start from values that both precisions can hold
        for tensor in (one.x, one.layer.weight, one.layer.bias):
            tensor.copy_(tensor.to(torch.bfloat16))
    twins = one.run(kind, options, None)
    one.x, one.layer = one.x.float(), one.layer.float()
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        ours = one.run(kind, options, sparse, chunk=100)
    for mine, twin in zip(ours, twins, strict=True):
        assert mine.dtype == torch.float32
        assert (mine.double() - twin).norm() < limit * twin.norm()


def test_a_layer_wholly_in_bfloat16_gets_bfloat16_gradients() -> None:
    one = case(60, 4, 6, 16)
    twins = one.run("bce", {}, None)
    one.x, one.layer = one.x.bfloat16(), one.layer.bfloat16()
    ours = one.run("bce", {}, one.targets, chunk=20)
    assert [t.dtype for t in ours] == [torch.float32, *[torch.bfloat16] * 3]
    for mine, twin in zip(ours, twins, strict=True):
        assert (mine.double() - twin).norm() < 2e-2 * twin.norm()


def test_soft_targets_work_from_lists_as_from_rows() -> None:
    one = case(30, 4, 3)
    one.targets = torch.rand(3, 30, dtype=torch.float64) * (torch.rand(3, 30) < 0.3)
    sparse = SparseTargets.from_dense(one.targets)
    options = {"label_smoothing": 0.1, "target_threshold": 0.2}
    check(one.run("bce", options, sparse, chunk=9), one.run("bce", options, None), rtol=1e-10)
    check(one.run("asymmetric", {}, sparse, chunk=9), one.run("asymmetric", {}, None), rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_dense_targets_without_a_sign_are_fine_beside_padding(dtype: torch.dtype) -> None:
    one = case(10, 3, 4)
    one.targets = (one.targets == 1).to(dtype)
    assert one.layer.num_queries * one.layer.group_size > 10
    check(one.run("bce", {}, one.targets), one.run("bce", {}, None), rtol=1e-10)


def test_padding_gets_no_gradient() -> None:
    one = case(10, 3, 4)
    for options in ({}, {"unknown_weight": 0.5}):
        _, _, weight, _ = one.run("bce", options, one.targets)
        used = torch.zeros(12, dtype=torch.bool)
        used[one.layer.slots] = True
        assert (weight.transpose(1, 2).reshape(12, -1)[~used] == 0).all()


def test_an_unknown_entry_may_be_nan() -> None:
    one = case(10, 3, 2)
    one.x[0] = torch.nan
    one.targets[0] = -1
    ours = one.run("asymmetric", {}, SparseTargets.from_dense(one.targets))
    assert torch.isfinite(ours[0])
    assert (ours[1][0] == 0).all()


def test_images_without_any_known_entry_cost_nothing() -> None:
    one = case(10, 3, 2)
    nothing = SparseTargets.from_lists([[], []], num_classes=10, default=-1)
    for kind in ("asymmetric", "bce", "focal"):
        for reduction in ("sum", "mean", "image_mean"):
            assert all((t == 0).all() for t in one.run(kind, {"reduction": reduction}, nothing))


@pytest.mark.parametrize("trained", ["x", "weight", "bias"])
def test_only_what_is_trained_gets_a_gradient(trained: str) -> None:
    one = case(12, 3, 2)
    twins = dict(zip(["x", "weight", "bias"], one.run("asymmetric", {}, None)[1:], strict=True))
    parts = {"x": one.x, "weight": one.layer.weight, "bias": one.layer.bias}
    for name, part in parts.items():
        part.requires_grad_(name == trained)
    (2.5 * grouped_loss(one.x, one.layer, one.targets, chunk=5)).backward()
    for name, part in parts.items():
        assert (part.grad is not None) == (name == trained)
    torch.testing.assert_close(parts[trained].grad, twins[trained])


def test_the_gradients_of_one_call_are_handed_out_once() -> None:
    one = case(12, 3, 2)
    loss = grouped_loss(one.x, one.layer, one.targets)
    loss.backward(retain_graph=True)
    with pytest.raises(TrainingError, match="handed out once"):
        loss.backward()


def test_gradients_add_up_over_several_calls() -> None:
    one = case(12, 3, 2)
    twin = one.run("asymmetric", {}, None)[2]
    for _ in range(2):
        grouped_loss(one.x, one.layer, one.targets).backward()
    torch.testing.assert_close(one.layer.weight.grad, twin / 2.5 * 2)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mean", [False, True])
def test_no_tensor_holds_all_logits(precision: torch.dtype, mean: bool) -> None:
    n, k, b, d = 6000, 30, 8, 2
    layer, x = GroupLinear(n, k, d, groups="random"), torch.randn(b, k, d, requires_grad=True)
    sparse = SparseTargets.from_lists([[1, 2], *[[]] * (b - 1)], unknown=[[5]] * b, num_classes=n)
    options = {"reduction": "mean"} if mean else {}
    for targets in (sparse, sparse.to_dense()):
        with LiveBytes() as count, torch.autocast("cpu", precision, enabled=precision != torch.float32):
            grouped_loss(x, layer, targets, options=options, chunk=400).backward()
        assert count.largest == layer.weight.numel()  # its gradient; the logits would be four times as many
        held = layer.weight.numel() * 4 + x.numel() * 4 + 8 * n * 8
        assert count.peak <= held + grouped.PLAIN_COPIES * 4 * b * 400


def test_the_weights_gradient_is_not_copied() -> None:
    layer, x = GroupLinear(400, 20, 64), torch.randn(2, 20, 64, requires_grad=True)
    sparse = SparseTargets.from_lists([[1], [2]], num_classes=400)
    with LiveBytes() as count:
        grouped_loss(x, layer, sparse, chunk=20).backward()
    assert count.peak < 1.5 * 4 * layer.weight.numel()


@pytest.mark.parametrize(("kind", "options"), LOSSES)
@pytest.mark.parametrize("k", [1, 40])
def test_by_default_the_blocks_fit_their_budget(
    kind: str, options: dict[str, Any], k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouped, "WORK_BYTES", 2**19)
    n, b, d = 4000, 16, 8
    layer, x = GroupLinear(n, k, d), torch.randn(b, k, d, requires_grad=True)
    sparse = SparseTargets.from_lists([[1, 2]] * b, num_classes=n)
    with LiveBytes() as count, torch.autocast("cpu", torch.bfloat16):
        grouped_loss(x, layer, sparse, kind=kind, options=options)
    held = 4 * layer.weight.numel() + 2 * 4 * x.numel() + 8 * 5 * n  # gradients, and a few values a class
    assert kind != "asymmetric" or count.peak - held > 2**17  # which they use, as this loss needs the most
    assert count.peak - held <= 2**19


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_costs_can_be_traced_as_one_graph(dtype: torch.dtype) -> None:
    one = case(30, 4, 6, weights=True)
    sparse = SparseTargets.from_dense(one.targets)
    costs = BlockCosts(AsymmetricCost(4.0, 1.0, 0.05, focal_grad=False), 0.0, dtype)
    args = (
        torch.randn(8, 6).to(dtype),
        torch.randn(8),
        sparse.to_dense().t()[:8],
        torch.tensor(0.5),
        torch.arange(8) > 6,
        torch.rand(6),
        torch.rand(8),
    )
    traced = torch.compile(costs, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad():
        for mine, twin in zip(traced(*args), costs(*args), strict=True):
            assert mine is not None
            assert twin is not None
            torch.testing.assert_close(mine, twin)


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True])
def test_fused_costs_give_the_same(padded: bool) -> None:
    one = case(39 if padded else 40, 4, 6, weights=padded)
    sparse = SparseTargets.from_dense(one.targets)
    for kind in ("asymmetric", "bce", "focal"):
        twin = one.run(kind, {"reduction": "mean"}, None)
        check(one.run(kind, {"reduction": "mean"}, sparse, chunk=12, fuse=True), twin, rtol=1e-10)


def test_the_kernel_scales_and_leaves_alone_what_is_scaled_by_one() -> None:
    pytest.importorskip("triton")
    program = """
import torch
from mldecoder.losses import scale_kernel
scale_kernel.PROGRAMS, scale_kernel.BLOCK = 3, 64
for dtype in (torch.float32, torch.float64):
    for count in (0, 1, 64, 1000):
        values = torch.randn(count, dtype=dtype)
        for factor in (1.0, 0.3):
            scaled = values.clone()
            scale_kernel.scale_(scaled, torch.tensor(factor))
            torch.testing.assert_close(scaled, values * factor)
"""
    interpreted = {**os.environ, "TRITON_INTERPRET": "1"}  # read when the kernel is defined
    done = subprocess.run([sys.executable, "-c", program], env=interpreted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@gpu
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-2)])
def test_on_a_gpu_it_stays_near_float64_and_never_waits(fuse: bool, dtype: torch.dtype, limit: float) -> None:
    one = case(3001, 7, 64, 96)
    with torch.no_grad():
        one.layer.weight.mul_(0.1)
        for tensor in (one.x, one.layer.weight, one.layer.bias):
            tensor.copy_(tensor.to(torch.bfloat16))
    sparse = SparseTargets.from_dense(one.targets)
    for kind, options in LOSSES:
        twins = one.run(kind, options, None)
        there = Case(one.x.float().cuda(), GroupLinear(3001, 7, 96, groups="random").cuda(), one.targets)
        there.layer.load_state_dict(one.layer.state_dict())
        moved = sparse.to("cuda")
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            there.run(kind, options, moved, chunk=1000, fuse=fuse)  # compiles
            torch.cuda.set_sync_debug_mode("error")
            try:
                ours = there.run(kind, options, moved, chunk=1000, fuse=fuse)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        for mine, twin in zip(ours, twins, strict=True):
            assert (mine.cpu().double() - twin).norm() < limit * twin.norm()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("softmax", {}, "needs all logits of an image at once"),
        ("asymetric", {}, "Did you mean 'asymmetric'"),
        ("bce", {"gamma_neg": 4}, "has the options"),
        ("bce", {"reduction": "none"}, "would hold every cost"),
        ("bce", {"reduction": "means"}, "Did you mean 'mean'"),
        ("bce", {"label_smoothing": 1.0}, "label_smoothing must be"),
        ("bce", {"unknown_weight": -1}, "unknown_weight must be"),
        ("asymmetric", {"clip": 2}, "clip must be"),
    ],
)
def test_wrong_options_are_refused(kind: str, options: dict[str, Any], message: str) -> None:
    one = case(6, 2, 2)
    with pytest.raises(ConfigError, match=message):
        grouped_loss(one.x, one.layer, one.targets, kind=kind, options=options)


def test_wrong_shapes_and_precisions_are_refused() -> None:
    one = case(6, 2, 2)
    with pytest.raises(InputError, match=r"x must have the shape \(images, 2 queries, width 5\)"):
        grouped_loss(one.x[:, :1], one.layer, one.targets)
    with pytest.raises(InputError, match=r"2 images and 6 classes, got \(2, 5\)"):
        grouped_loss(one.x, one.layer, one.targets[:, :5])
    with pytest.raises(InputError, match=r"2 images and 6 classes, got \(1, 6\)"):
        grouped_loss(one.x, one.layer, SparseTargets.from_lists([[1]], num_classes=6))
    with pytest.raises(InputError, match="class_weights must have the shape"):
        grouped_loss(one.x, one.layer, one.targets, class_weights=torch.ones(5))
    with pytest.raises(InputError, match="one precision outside autocast"):
        grouped_loss(one.x.float(), one.layer, one.targets)
    with pytest.raises(ConfigError, match="chunk must be at least 1"):
        grouped_loss(one.x, one.layer, one.targets, chunk=0)
