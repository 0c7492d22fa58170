"""A group layer split over processes: the same logits, best classes and weights as on one."""

import copy
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from mldecoder.errors import CheckpointError, ConfigError, InputError
from mldecoder.heads import GlobalAveragePool, GroupLinear, MLDecoder
from mldecoder.heads.ranking import first_of, in_order
from mldecoder.heads.ranks import Ranks
from mldecoder.heads.split import SplitGroupLinear, split_head
from mldecoder.heads.split_state import gather_full_state, load_split_state, save_split_state
from mldecoder.heads.split_top_k import split_top_k
from mldecoder.heads.split_training import clip_grad_norm_, common_buffers, keep_from_ddp, split_parameters
from mldecoder.heads.top_k import top_k
from mldecoder.losses import build
from mldecoder.losses.split import split_loss
from tests.ranks import run

State = dict[str, Tensor]


def rebuilt(sizes: dict[str, Any], state: State) -> GroupLinear:
    layer = GroupLinear(sizes["n"], sizes["k"], 4, groups="random", layout=sizes["layout"]).double()
    layer.load_state_dict(state)
    return layer


# Shares


@given(world=st.integers(1, 9), count=st.integers(0, 40))
def test_shares_are_those_of_torch_chunk(world: int, count: int) -> None:
    ranks = Ranks()
    ranks.size = world
    ours = [list(range(count))[share] for share in ranks.shares(count)]
    twins = [chunk.tolist() for chunk in torch.arange(count).chunk(world)] if count else []
    assert [share for share in ours if share] == twins
    assert len(ours) == world


@given(n=st.integers(1, 60), world=st.integers(1, 5), data=st.data())
def test_weights_do_not_depend_on_the_number_of_processes(n: int, world: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    alone = SplitGroupLinear(n, k, 3, groups="random", seed=4)
    parts = []
    for rank in range(world):
        ranks = Ranks()
        ranks.size, ranks.rank = world, rank
        parts.append(SplitGroupLinear(n, k, 3, groups="random", seed=4, ranks=ranks).share)
    assert torch.equal(torch.cat([part.weight for part in parts]), alone.share.weight)
    assert torch.equal(torch.cat([part.classes for part in parts]).sort().values, torch.arange(n))


def test_weights_are_drawn_as_the_whole_layer_draws_them() -> None:
    whole, split = GroupLinear(20_000, 20, 32), SplitGroupLinear(20_000, 20, 32)
    assert split.share.weight.std().item() == pytest.approx(whole.weight.std().item(), rel=0.02)
    assert not torch.equal(split.share.weight[0], split.share.weight[1])


# Logits and the best of them


def logits_of(
    rank: int, group: ProcessGroup, sizes: dict[str, Any], state: State, x: list[Tensor], count: int
) -> list[Tensor]:
    layer = SplitGroupLinear.of(rebuilt(sizes, state), Ranks(group))
    mine = x[rank].requires_grad_()
    logits = layer(mine)
    (logits.sin() * 2).sum().backward()
    assert mine.grad is not None
    assert layer.share.weight.grad is not None
    values, classes = split_top_k(mine, layer, count, chunk=sizes["chunk"])
    whole = gather_full_state(layer)
    for name, tensor in state.items():
        assert torch.equal(whole[name], tensor)
    return [logits.detach(), mine.grad, layer.share.weight.grad, values, classes]


@settings(max_examples=30)
@given(
    world=st.integers(1, 4),
    n=st.integers(1, 30),
    layout=st.sampled_from(["balanced", "ceil"]),
    whole_numbers=st.booleans(),
    chunk=st.sampled_from([None, 1, 4]),
    data=st.data(),
)
def test_logits_gradients_and_best_classes_equal_one_process(
    world: int, n: int, layout: str, whole_numbers: bool, chunk: int | None, data: st.DataObject
) -> None:
    k, count = data.draw(st.integers(1, n)), data.draw(st.integers(1, n))
    images = data.draw(st.lists(st.integers(0, 3), min_size=world, max_size=world))
    layer = GroupLinear(n, k, 4, groups="random", layout=layout).double()  # type: ignore[arg-type]
    x = torch.randn(sum(images), k, 4, dtype=torch.float64)
    with torch.no_grad():
        layer.bias.normal_()
        if whole_numbers:  # then many logits are equal
            for tensor in (layer.weight, layer.bias, x):
                tensor.copy_(torch.randint(-1, 2, tensor.shape))
    x.requires_grad_()
    logits = layer(x)
    (logits.sin() * 2).sum().backward()
    sizes = {"n": n, "k": k, "layout": layout, "chunk": chunk}
    parts = [part.detach().clone() for part in x.split(images)]
    answers = run(world, logits_of, sizes, layer.state_dict(), parts, count)
    ours, grad_x, grad_weight, values, classes = (torch.cat([a[i] for a in answers]) for i in range(5))
    torch.testing.assert_close(ours, logits.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grad_x, x.grad, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(grad_weight, layer.weight.grad, rtol=1e-10, atol=1e-12)
    plain_values, plain_classes = top_k(x.detach(), layer, count)
    torch.testing.assert_close(values, plain_values, rtol=1e-12, atol=1e-12)
    assert torch.equal(classes, plain_classes)
    if whole_numbers:  # the slow twin: sort everything, equal logits by their class
        assert torch.equal(classes, logits.sort(dim=1, descending=True, stable=True).indices[:, :count])


@given(b=st.integers(0, 3), s=st.integers(1, 20), most=st.integers(0, 4), data=st.data())
def test_of_equal_values_the_lower_class_comes_first(b: int, s: int, most: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, s))
    values, classes = torch.randint(0, most + 1, (b, s)).float(), torch.randperm(s)
    twin = sorted_slowly(values, classes, count)
    found = in_order(*first_of(values, classes, count), count)
    assert torch.equal(found[1], twin)
    assert torch.equal(in_order(values, classes.expand(b, s), count)[1], twin)


def sorted_slowly(values: Tensor, classes: Tensor, count: int) -> Tensor:
    rows = [sorted(zip((-row).tolist(), classes.tolist(), strict=True))[:count] for row in values]
    return torch.tensor([[number for _, number in row] for row in rows], dtype=torch.long).view(len(values), count)


def test_numbers_that_are_none_come_first_as_topk_has_it() -> None:
    values = torch.tensor([[1.0, torch.nan, 1.0, 1.0, 0.0]])
    found = in_order(*first_of(values, torch.tensor([9, 3, 5, 4, 1]), 3), 3)
    assert found[1].tolist() == [[3, 4, 5]]


# Training beside DDP and FSDP


class Model(nn.Module):
    """A decoder, and a layer that answers for 31 classes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.head = MLDecoder(31, 6, num_queries=5, width=8, ff_width=16, heads=2, dropout=0.0, queries="learnable")
        self.double()

    def forward(self, features: Tensor, targets: Tensor) -> Tensor:
        decoded = self.head.decode(features)
        if isinstance(self.head.classify, SplitGroupLinear):
            return split_loss(decoded, cast(SplitGroupLinear, self.head.classify), targets)
        return build("asymmetric")(self.head.classify(decoded), targets)


def batches() -> list[tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(1)
    return [
        (torch.randn(5, 9, 6, generator=g).double(), (torch.rand(5, 31, generator=g) < 0.2).long()) for _ in range(3)
    ]


def trained(rank: int, group: ProcessGroup, wrap: str) -> tuple[State, list[float]]:
    model = Model()
    split_head(model.head, Ranks(group))
    wrapped: nn.Module = model
    if wrap == "ddp":
        keep_from_ddp(model)
        wrapped = DistributedDataParallel(model, process_group=group)
    elif wrap == "fsdp":
        mesh = DeviceMesh.from_group(group, "cpu")
        fully_shard(model, mesh=mesh, ignored_params=split_parameters(model), reshard_after_forward=False)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.05)
    told = []
    for features, targets in batches():
        part = slice(0, 3) if rank == 0 else slice(3, 5)  # uneven
        loss = wrapped(features[part], targets[part])
        loss.backward()
        told += [float(loss.detach()), float(clip_grad_norm_(model, 1.0))]
        optimiser.step()
        optimiser.zero_grad()
    layer = cast(SplitGroupLinear, model.head.classify)
    state = {name: _whole(p.detach()) for name, p in model.named_parameters() if "share" not in name}
    return state | {f"head.classify.{key}": value for key, value in gather_full_state(layer).items()}, told


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_three_steps_equal_one_process_beside(wrap: str) -> None:
    model, told = Model(), []
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.05)
    for features, targets in batches():
        loss = model(features, targets)
        loss.backward()
        told += [float(loss.detach()), float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))]
        optimiser.step()
        optimiser.zero_grad()
    twin = model.state_dict()
    for state, ours in run(2, trained, wrap):
        assert ours == pytest.approx(told, rel=1e-10)
        for name, tensor in state.items():
            torch.testing.assert_close(tensor, twin[name], rtol=1e-7, atol=1e-8)


def test_an_average_of_the_model_lives_in_the_same_processes() -> None:
    model = Model()
    split_head(model.head)
    again = copy.deepcopy(model)
    assert cast(SplitGroupLinear, again.head.classify).ranks is cast(SplitGroupLinear, model.head.classify).ranks
    assert not {id(b) for b in common_buffers(model)} & {id(b) for b in model.head.classify.buffers()}


# Checkpoints at another number of processes

SIZES = (23, 7, 3)


def stepped(ranks: Ranks, steps: int, kind: str, layer: SplitGroupLinear | None = None) -> Any:  # noqa: ANN401
    layer = SplitGroupLinear(*SIZES, groups="random", seed=1, ranks=ranks).double() if layer is None else layer
    optimisers: dict[str, Any] = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    options: dict[str, Any] = {"lr": 0.1, "momentum": 0.9} if kind == "sgd" else {"lr": 0.1}
    optimiser = optimisers[kind](layer.parameters(), **options)
    take_steps(layer, optimiser, steps)
    return layer, optimiser


def take_steps(layer: SplitGroupLinear, optimiser: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        g = torch.Generator().manual_seed(step)
        x = torch.randn(3, SIZES[1], SIZES[2], generator=g, dtype=torch.float64)
        targets = torch.randint(0, 2, (3, SIZES[0]), generator=g)
        mine = slice(None) if layer.ranks.rank == 0 else slice(0, 0)  # all images on the first process
        optimiser.zero_grad()
        split_loss(x[mine], layer, targets[mine]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def saved(rank: int, group: ProcessGroup, folder: Path, kind: str) -> State:
    layer, optimiser = stepped(Ranks(group), 2, kind)
    save_split_state(folder, layer, optimiser)
    take_steps(layer, optimiser, 2)
    return gather_full_state(layer)


def gone_on(rank: int, group: ProcessGroup, folder: Path, kind: str) -> State:
    layer, optimiser = stepped(Ranks(group), 0, kind)
    load_split_state(folder, layer, optimiser)
    take_steps(layer, optimiser, 2)
    return gather_full_state(layer)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_checkpoint_of_two_processes_goes_on_at_one_three_and_four(kind: str, tmp_path: Path) -> None:
    whole = run(2, saved, tmp_path / "state", kind)[0]
    for world in (1, 2, 3, 4):
        again = run(world, gone_on, tmp_path / "state", kind)[-1]
        for name, tensor in whole.items():
            torch.testing.assert_close(again[name], tensor, rtol=1e-9, atol=1e-12)
    layer, optimiser = stepped(Ranks(), 0, kind)  # and without torch.distributed
    load_split_state(tmp_path / "state", layer, optimiser)
    take_steps(layer, optimiser, 2)
    torch.testing.assert_close(layer.share.weight.detach(), whole["weight"], rtol=1e-9, atol=1e-12)


def test_a_checkpoint_of_other_groups_is_refused(tmp_path: Path) -> None:
    layer = SplitGroupLinear(9, 3, 2, groups="random", seed=0)
    save_split_state(tmp_path / "state", layer)
    with pytest.raises(CheckpointError, match=r"in another way\. Use the same groups"):
        load_split_state(tmp_path / "state", SplitGroupLinear(9, 3, 2, groups="random", seed=1))
    with pytest.raises(CheckpointError, match=r"the layer has 4 queries of width 2"):
        load_split_state(tmp_path / "state", SplitGroupLinear(9, 4, 2))
    with pytest.raises(CheckpointError, match="holds no state of a split layer"):
        load_split_state(tmp_path / "nothing", layer)


def test_what_cannot_be_split_or_asked_is_refused() -> None:
    with pytest.raises(ConfigError, match="Only a plain ML-Decoder head can be split"):
        split_head(GlobalAveragePool(3, 4))  # type: ignore[arg-type]
    layer = SplitGroupLinear(6, 2, 3)
    with pytest.raises(ConfigError, match="count must be between 1 and the 6 classes, got 7"):
        split_top_k(torch.zeros(1, 2, 3), layer, 7)
    with pytest.raises(InputError, match="x must have the shape"):
        layer(torch.zeros(1, 3, 3))
