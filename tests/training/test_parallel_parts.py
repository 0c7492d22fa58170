"""The parts of training on many machines, each by itself: units, shares, meetings, checkpoints, restarts."""

import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed import HashStore  # type: ignore[attr-defined]

import mldecoder as mld
from mldecoder.errors import CheckpointError, ConfigError, TrainingError
from mldecoder.losses import build
from mldecoder.recipes import load_recipe
from mldecoder.training.checkpoint import Checkpoint, CheckpointFile, Progress
from mldecoder.training.folder import RunFolder
from mldecoder.training.loading import Batch
from mldecoder.training.meeting import agree
from mldecoder.training.restarts import check_output, goes_on
from mldecoder.training.sharded import LEAST, is_sharded, units
from mldecoder.training.sharded_checkpoint import CheckpointFolder
from mldecoder.training.shares import Shares


@pytest.mark.parametrize(
    ("name", "count", "kind"),
    [
        ("vit_base_patch16_224", 12, "Block"),
        ("resnet50", 9, "Bottleneck"),
        ("convnext_tiny", 12, "ConvNeXtBlock"),
        ("swin_tiny_patch4_window7_224", 8, "SwinTransformerBlock"),
    ],
)
def test_the_units_of_a_backbone_are_its_large_blocks(name: str, count: int, kind: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    found = units(model)
    assert {type(unit).__name__ for unit in found} == {kind}
    assert len(found) == count
    assert all(sum(p.numel() for p in unit.parameters()) >= LEAST for unit in found)


def test_no_unit_holds_another_one() -> None:
    model = timm.create_model("test_vit")
    found = units(model, least=1)
    inside = [part for unit in found for part in unit.modules()]
    assert len(found) > 1
    assert len(inside) == len(set(inside))
    assert not is_sharded(model)


def batch_of(targets: Tensor) -> Batch:
    empty = torch.zeros(len(targets))
    return Batch(empty, targets, empty.long(), empty.bool())


@given(
    world=st.integers(1, 3),
    goes=st.integers(1, 3),
    kind=st.sampled_from(["bce", "asymmetric", "focal", "softmax"]),
    reduction=st.sampled_from(["sum", "mean", "image_mean"]),
    seed=st.integers(0, 1000),
)
def test_a_step_has_one_loss_however_it_is_shared(world: int, goes: int, kind: str, reduction: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(world * goes, 2, 5, generator=generator, dtype=torch.float64)  # two pictures a share
    targets = torch.randint(-1, 2, logits.shape, generator=generator)
    loss = build(kind, {"reduction": reduction})
    whole = loss(logits.flatten(0, 1), targets.flatten(0, 1))

    def share(rank: int) -> list[int]:
        return [go * world + rank for go in range(goes)]

    def everyone(own: Tensor, reduction: str) -> Tensor:
        assert reduction == "sum"
        rows = kind == "softmax"
        return torch.tensor(float((targets > 0).any(-1).sum() if rows else (targets >= 0).sum())).to(own)

    total = torch.zeros(())
    for rank in range(world):
        processes: Any = SimpleNamespace(num_processes=world, device=torch.device("cpu"), reduce=everyone)
        shares = Shares(loss, processes, goes, rows=kind == "softmax")
        weights = shares.weights([batch_of(targets[i]) for i in share(rank)])
        parts = [loss(logits[i], targets[i]) * weight for i, weight in zip(share(rank), weights, strict=True)]
        total = total + torch.stack(parts).sum() / world  # goes add up, processes are averaged
    torch.testing.assert_close(total, whole, rtol=1e-5, atol=1e-7, check_dtype=False)


def meeting(store: HashStore, world: int) -> list[str]:
    """The names that the processes of a meeting get."""
    names = [""] * world

    def come(rank: int) -> None:
        names[rank] = agree(store, rank, world, patience=60)

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return names


def test_processes_meet_under_a_new_name_among_the_words_of_the_dead() -> None:
    store = HashStore()
    names = [meeting(store, world) for world in (3, 3, 2, 3)]
    assert all(len(set(meeting_)) == 1 and meeting_[0] for meeting_ in names)
    assert len({meeting_[0] for meeting_ in names}) == 4


def test_a_meeting_that_nobody_comes_to_says_who_is_missing() -> None:
    with pytest.raises(TrainingError, match="2 processes were to meet within 0 seconds, got 1"):
        agree(HashStore(), 0, 2, patience=0.2)


def parts_of(make: Callable[[], nn.Module]) -> dict[str, Any]:
    """A model with an optimiser that has taken a step, and its schedule."""
    model = make()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.1, total_steps=10)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    schedule.step()
    return {"model": model, "optimiser": optimiser, "schedule": schedule}


def linear() -> nn.Module:
    return nn.Linear(3, 2)


class TestCheckpoints:
    @pytest.fixture(params=["file", "folder"])
    def store_of(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[nn.Module], Any]:
        if request.param == "file":
            return lambda _: CheckpointFile(tmp_path / "checkpoint.pt")
        return lambda model: CheckpointFolder(tmp_path / "checkpoint", model)

    def test_what_comes_back_is_what_was_there_when_it_was_saved(self, store_of: Callable[[nn.Module], Any]) -> None:
        saved = parts_of(linear)
        expected = {key: value.clone() for key, value in saved["model"].state_dict().items()}
        moment = saved["optimiser"].state[saved["model"].weight]["exp_avg"].clone()
        progress = Progress(epoch=3, step=2, history=[{"loss": 1.5}])
        store = store_of(saved["model"])
        store.save(progress, saved)
        with torch.no_grad():  # training goes on while it is written
            saved["model"].weight.fill_(7)
            saved["optimiser"].state[saved["model"].weight]["exp_avg"].fill_(7)
        progress.history.append({"loss": 9.9})
        assert store.finish() is not None

        other = parts_of(linear)
        assert store_of(other["model"]).load(other) == Progress(epoch=3, step=2, history=[{"loss": 1.5}])
        for key, value in other["model"].state_dict().items():
            assert torch.equal(value, expected[key])
        assert torch.equal(other["optimiser"].state[other["model"].weight]["exp_avg"], moment)
        assert other["schedule"].get_last_lr() == saved["schedule"].get_last_lr()

    def test_the_newest_counts(self, store_of: Callable[[nn.Module], Any]) -> None:
        parts = parts_of(linear)
        store = store_of(parts["model"])
        for step in (8, 9, 10):
            store.save(Progress(step=step), parts)
        store.finish()
        assert store_of(parts["model"]).load(parts).step == 10

    def test_without_any_there_is_none(self, store_of: Callable[[nn.Module], Any]) -> None:
        parts = parts_of(linear)
        assert store_of(parts["model"]).load(parts) is None
        assert store_of(parts["model"]).finish() is None


def test_a_checkpoint_without_its_index_does_not_count_and_goes(tmp_path: Path) -> None:
    parts = parts_of(linear)
    store = CheckpointFolder(tmp_path, parts["model"])
    store.save(Progress(step=2), parts)
    (tmp_path / "00000-0000004").mkdir()  # a process was killed while it wrote
    (tmp_path / "00000-0000004" / "__0_0.distcp").write_bytes(b"half")
    loaded = store.load(parts)
    assert loaded is not None
    assert loaded.step == 2
    store.save(Progress(step=4), parts)
    assert [place.name for place in tmp_path.iterdir()] == ["00000-0000004"]


def test_a_broken_sharded_checkpoint_is_one_line(tmp_path: Path) -> None:
    parts = parts_of(linear)
    store = CheckpointFolder(tmp_path, parts["model"])
    store.save(Progress(), parts)
    next(tmp_path.glob("*/*.distcp")).unlink()
    with pytest.raises(CheckpointError, match="cannot be read") as error:
        store.load(parts)
    assert "\n" not in str(error.value)


def test_what_goes_wrong_in_the_background_is_not_lost(tmp_path: Path) -> None:
    parts = parts_of(linear)
    store = CheckpointFile(tmp_path / "no folder" / "checkpoint.pt")
    store.save(Progress(), parts)
    with pytest.raises(FileNotFoundError):
        store.finish()


def test_a_file_of_an_older_version_still_loads(tmp_path: Path) -> None:
    parts = parts_of(linear)
    states = {name: part.state_dict() for name, part in parts.items()}
    torch.save({"progress": asdict(Progress(epoch=2)), "states": states}, tmp_path / "checkpoint.pt")
    other = parts_of(linear)
    loaded = CheckpointFile(tmp_path / "checkpoint.pt").load(other)
    assert loaded == Progress(epoch=2) == Checkpoint.load(tmp_path / "checkpoint.pt").progress
    assert torch.equal(other["model"].weight, parts["model"].weight)


class TestRestarts:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> RunFolder:
        folder = RunFolder(tmp_path / "run")
        folder.start("photos", load_recipe("scenes"))
        return folder

    def test_the_same_run_goes_on_where_it_is_wished(self, folder: RunFolder, tmp_path: Path) -> None:
        recipe = load_recipe("scenes")
        assert goes_on(folder, "photos", recipe, wished=True)
        assert not goes_on(folder, "photos", recipe, wished=False)
        assert not goes_on(RunFolder(tmp_path / "new"), "photos", recipe, wished=True)

    def test_the_same_run_goes_on_under_torchrun(self, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
        assert goes_on(folder, "photos", load_recipe("scenes"), wished=False)

    def test_another_run_is_not_touched(self, folder: RunFolder) -> None:
        with pytest.raises(TrainingError, match=r"training\.epochs is 7 there and 3 here.*--output"):
            goes_on(folder, "photos", load_recipe("scenes", ["training.epochs=3"]), wished=True)
        with pytest.raises(TrainingError, match="--data is photos there and pictures here"):
            goes_on(folder, "pictures", load_recipe("scenes"), wished=True)

    def test_a_run_that_may_be_restarted_needs_a_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        check_output(named=False)
        monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
        check_output(named=True)
        with pytest.raises(ConfigError, match="--output"):
            mld.train(recipe="scenes")


def test_words_that_vary_are_not_counted() -> None:
    processes: Any = SimpleNamespace(num_processes=2, device=torch.device("cpu"))
    shares = Shares(build("bce", {}), processes, 2, by_words=True)
    assert shares.weights([]).tolist() == [0.5, 0.5]
