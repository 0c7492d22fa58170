"""Training from packed shards at an address: each picture once an epoch, killed or not, within a bounded cache."""

import os
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import mldecoder as mld
from mldecoder.data import remote
from mldecoder.data.dataset import ImageSet
from mldecoder.data.detect import open_dataset
from mldecoder.data.images import TorchImages
from mldecoder.data.pictures import shard_windows
from mldecoder.data.shard_cache import locked
from mldecoder.data.shard_writer import PackSettings, pack
from mldecoder.data.split import split_off
from mldecoder.errors import StorageError
from mldecoder.training.loading import Batch, training_batches
from mldecoder.training.opening import source_of
from mldecoder.training.order import EpochBatches
from tests.cli import command, environment, run
from tests.data.served import Served, served

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "scenes"
    pack("scenes", folder, PackSettings(shard_pictures=7), options={"count": 96})
    return folder


@pytest.fixture
def site(packed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Served]:
    monkeypatch.setenv("MLDECODER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "PAUSE", 0.001)
    with served(packed) as state:
        yield state


def pixels(picture: object) -> torch.Tensor:
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1)


def held(root: Path) -> int:
    """Bytes in the cache, counted while nobody makes room."""
    folder = root / "cache" / "shards"
    with locked(folder / "lock-room"):
        return sum(path.stat().st_size for path in folder.glob("*.tar*"))  # what is being fetched too


def loader(train: ImageSet, rank: int, workers: int, epoch: int, step: int) -> tuple[EpochBatches, Iterator[Batch]]:
    order = EpochBatches(len(train), 8, seed=3, rank=rank, world=2)
    batches = training_batches(TorchImages(train, pixels), order, CPU, workers)
    order.set_place(epoch, step)
    return order, batches


@pytest.fixture
def in_memory(packed: Path) -> Iterator[str]:
    memory = fsspec.filesystem("memory")
    memory.put(str(packed), "/bucket/shards", recursive=True)
    yield "memory://bucket/shards"
    memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize(("scheme", "workers"), [("http", 0), ("http", 2), ("memory", 0), ("memory", 2)])
def test_two_processes_that_are_killed_and_go_on_see_each_picture_once(
    scheme: str, workers: int, packed: Path, site: Served, in_memory: str, tmp_path: Path
) -> None:
    # 96 pictures, 8 a step: 12 steps. Both processes die after step 5 and begin anew, with nothing but the step.
    # Three windows of two shards and 96 KB or so each: the cache cannot hold the whole set.
    most = round(max(path.stat().st_size for path in packed.glob("*.tar")) * 6.5) / 1e9
    options = {"shard_window": 2, "shard_cache": most}
    local = open_dataset(packed, options=options).train
    ids: list[int] = []
    for first, last in ((0, 5), (5, 12)):
        for rank in (0, 1):
            train = open_dataset(site.url if scheme == "http" else in_memory, options=options).train
            order, batches = loader(train, rank, workers, epoch=1, step=first)
            assert order.windows is not None
            for _ in range(first, last):
                batch = next(batches)
                assert not batch.broken.any()
                for image, target, index in zip(batch.images, batch.targets, batch.indices.tolist(), strict=True):
                    ids.append(index)
                    assert torch.equal(image, pixels(decoded(local, index)))
                    assert torch.equal(target, torch.from_numpy(local.targets.row(index)))
            del batches
            assert held(tmp_path) <= most * 1e9
    assert Counter(ids) == dict.fromkeys(range(96), 1)


def decoded(train: ImageSet, index: int) -> object:
    from mldecoder.data.decode import decode

    return decode(train.pictures.read(index))


def test_an_undisturbed_epoch_is_the_same_as_one_in_two_pieces(packed: Path) -> None:
    train = open_dataset(packed, options={"shard_window": 2}).train
    whole = [next(batches) for _, batches in [loader(train, 0, 0, 2, 0)] for _ in range(12)]
    pieces = [
        next(batches) for step, n in ((0, 7), (7, 5)) for _, batches in [loader(train, 0, 2, 2, step)] for _ in range(n)
    ]
    assert [b.indices.tolist() for b in whole] == [b.indices.tolist() for b in pieces]


@pytest.mark.parametrize("workers", [0, 2])
def test_storage_that_fails_ends_training_in_one_line_and_is_no_broken_picture(
    workers: int, packed: Path, site: Served
) -> None:
    train = open_dataset(site.url).train
    site.failures.update({path.name: 10_000 for path in packed.glob("train-*.tar")})
    _, batches = loader(train, 0, workers, 0, 0)
    with pytest.raises(StorageError) as raised:
        next(batches)
    assert str(raised.value).startswith("http://127.0.0.1")
    assert "could not be read in 5 tries (status 503" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


TINY = ["image.size=32", "head.width=16", "head.ff_width=16", "training.epochs=1", "training.batch_size=16"]


def test_training_from_an_address_is_training_from_the_folder(packed: Path, site: Served, tmp_path: Path) -> None:
    states = []
    for name, source in (("folder", str(packed)), ("http", site.url)):
        overrides = [*TINY, f"data.workers={int(name == 'http')}"]
        mld.train(source, recipe="scenes", output=tmp_path / name, overrides=overrides, quiet=True)
        states.append(load_file(tmp_path / name / "last" / "model.safetensors"))
    assert all(torch.equal(value, states[0][key]) for key, value in states[1].items())
    assert mld.evaluate(tmp_path / "http")["mAP"] == pytest.approx(mld.evaluate(tmp_path / "folder")["mAP"])
    assert "http://127.0.0.1" in (tmp_path / "http" / "run.yaml").read_text()


def test_an_address_goes_through_untouched() -> None:
    assert source_of("s3://bucket//shards/?a=../b") == "s3://bucket//shards/?a=../b"


def test_a_validation_part_can_be_split_off_packed_shards(packed: Path) -> None:
    train, val = split_off(open_dataset(packed).train, 0.25, seed=0)
    windows = shard_windows(train.pictures)
    assert windows is not None
    assert len(windows.shard) == len(train) == 96 - len(val)


@pytest.mark.slow
def test_a_run_over_http_that_is_killed_in_an_epoch_ends_with_the_weights_of_an_undisturbed_one(
    packed: Path, site: Served, tmp_path: Path
) -> None:
    sets = [*TINY, "training.epochs=2", "training.batch_size=8", "training.checkpoint_steps=1", "data.workers=2"]
    sets += ["data.options.shard_window=2", "data.options.shard_cache=0.001"]
    words = [word for override in sets for word in ("--set", override)]
    whole = ["train", "--data", str(packed), "--recipe", "scenes", "--output", str(tmp_path / "whole"), *words]
    assert run(*whole).returncode == 0  # as a process, too: other numbers of threads round otherwise
    out = tmp_path / "killed"
    start = command("train", "--data", site.url, "--recipe", "scenes", "--output", str(out), *words)
    process = subprocess.Popen(start, env=environment(), stdout=subprocess.DEVNULL, start_new_session=True)
    while not (out / "checkpoint.pt").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "metrics.jsonl").exists()  # within the first epoch
    assert run("train", "--output", str(out), "--resume").returncode == 0
    expected = load_file(tmp_path / "whole" / "last" / "model.safetensors")
    found = load_file(out / "last" / "model.safetensors")
    assert all(torch.equal(found[key], value) for key, value in expected.items())
    assert 0 < held(tmp_path) <= 1_000_000


@pytest.mark.slow
def test_memory_stays_flat_and_the_cache_bounded_over_many_shards(site: Served, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    pack("scenes", folder, PackSettings(shard_pictures=25, check=False), options={"count": 4000})
    sizes = [path.stat().st_size for path in folder.glob("train-*.tar")]
    limit = max(sizes) * 13
    site.folder = folder
    train = open_dataset(site.url, options={"shard_window": 4, "shard_cache": limit / 1e9}).train
    order = EpochBatches(len(train), 40, seed=0)
    batches = training_batches(TorchImages(train, pixels), order, CPU, 0)
    peaks, ids = [], Counter[int]()
    for epoch in range(3):
        order.set_place(epoch)
        for _ in range(order.steps):
            ids.update(next(batches).indices.tolist())
            assert held(tmp_path) <= limit
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert Counter(ids) == dict.fromkeys(range(4000), 3)
    assert limit < sum(sizes) / 10
    assert peaks[2] - peaks[0] < 20_000  # KB; the set has 40 MB
