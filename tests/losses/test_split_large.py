"""200,000 classes with 400 queries on two processes: everything equals one process, and each holds half."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tools.split_memory import Setting, measure
from torch import Tensor
from torch.distributed import ProcessGroup

from mldecoder.heads import GroupLinear
from mldecoder.heads.ranks import Ranks
from mldecoder.heads.split import SplitGroupLinear
from mldecoder.heads.split_top_k import split_top_k
from mldecoder.heads.top_k import top_k
from mldecoder.losses import SparseTargets, build
from mldecoder.losses.split import split_loss
from tests.ranks import run

N, K, IMAGES, BEST = 200_000, 400, 4, 100


def lists() -> list[list[int]]:
    g = torch.Generator().manual_seed(5)
    return [torch.randint(N, (20,), generator=g).tolist() for _ in range(IMAGES)]


def of_one_part(rank: int, group: ProcessGroup, folder: Path, width: int) -> None:
    own = slice(0, 1) if rank == 0 else slice(1, IMAGES)  # uneven
    with safe_open(folder / "whole.safetensors", framework="pt") as file:
        x = file.get_tensor("x")[own].requires_grad_()
        layer = SplitGroupLinear.empty(file.get_tensor("slots"), K, N // K, width, Ranks(group))
        with torch.no_grad():
            layer.share.weight.copy_(file.get_slice("weight")[layer.share.queries.start : layer.share.queries.stop])
            layer.share.bias.copy_(file.get_tensor("bias")[layer.share.classes])
    with torch.no_grad():
        logits = layer(x)
    values, classes = split_top_k(x, layer, BEST)
    loss = split_loss(x, layer, SparseTargets.from_lists(lists()[own], num_classes=N), averaged=False)
    loss.backward()  # type: ignore[no-untyped-call]
    share = layer.share
    found = {"logits": logits, "values": values, "classes": classes, "loss": loss.detach(), "own": share.classes}
    gradients = {"x": x.grad, "weight": share.weight.grad, "bias": share.bias.grad}
    save_file(found | {name: g for name, g in gradients.items() if g is not None}, folder / f"{rank}.safetensors")


@pytest.mark.parametrize("width", [8, pytest.param(768, marks=pytest.mark.slow)])
def test_two_processes_equal_one(width: int, tmp_path: Path) -> None:
    layer, x = GroupLinear(N, K, width, groups="random"), torch.randn(IMAGES, K, width, requires_grad=True)
    torch.nn.init.normal_(layer.bias, std=0.1)
    state = {name: tensor.detach() for name, tensor in layer.state_dict().items()}
    save_file(state | {"x": x.detach()}, tmp_path / "whole.safetensors")
    run(2, of_one_part, tmp_path, width)
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))

    logits = layer(x)
    loss = build("asymmetric")(logits, SparseTargets.from_lists(lists(), num_classes=N).to_dense())
    loss.backward()  # type: ignore[no-untyped-call]
    values, classes = top_k(x.detach(), layer, BEST)
    close(torch.cat([first["logits"], second["logits"]]), logits.detach())
    close(torch.cat([first["values"], second["values"]]), values)
    ours = torch.cat([first["classes"], second["classes"]])
    close(logits.detach().gather(1, ours), values)  # where rounding changes the order, the logits are as good as equal
    assert (ours == classes).float().mean() > 0.99
    for part in (first, second):
        close(part["loss"], loss.detach())
        assert layer.bias.grad is not None
        close(part["bias"], layer.bias.grad[part["own"]])
    close(torch.cat([first["x"], second["x"]]), x.grad)
    close(torch.cat([first["weight"], second["weight"]]), layer.weight.grad)


def close(ours: Tensor, twin: Tensor | None) -> None:
    assert twin is not None
    torch.testing.assert_close(ours, twin, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_two_processes_hold_half_each() -> None:
    setting = Setting(classes=N, queries=K)
    (alone,), halves = measure(setting, 1), measure(setting, 2)
    for one in halves:
        for name in ("weights", "numbering", "gradients", "state"):
            assert getattr(one, name) == pytest.approx(getattr(alone, name) / 2, rel=0.01)
        assert one.peak == pytest.approx(alone.peak / 2, rel=0.1)
        assert one.peak == pytest.approx(setting.formula(2).peak, rel=0.1)
        assert one.grown < 0.6 * alone.grown
