"""Packed shards opened by their index: from a folder, over HTTP, from memory."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mldecoder.data import remote
from mldecoder.data.dataset import Dataset
from mldecoder.data.detect import open_dataset
from mldecoder.data.pictures import TarMembers, to_bytes
from mldecoder.data.shard_index import FILE
from mldecoder.data.shard_writer import PackSettings, pack
from mldecoder.data.summary import summarise
from mldecoder.errors import ConfigError, DataError, StorageError
from tests.data import layouts
from tests.data.picture_files import picture
from tests.data.served import served


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(remote, "PAUSE", 0.001)
    monkeypatch.setenv("MLDECODER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "scenes"
    pack("scenes", folder, PackSettings(shard_pictures=10), options={"count": 60})
    return folder


def same(one: Dataset, other: Dataset) -> bool:
    assert one.val is not None
    assert other.val is not None
    return (one.labels, one.task, one.description, one.notes) == (
        other.labels,
        other.task,
        other.description,
        other.notes,
    ) and all(
        (a.targets.rows(range(len(a))) == b.targets.rows(range(len(b)))).all()
        and [(a.pictures.read(i), a.pictures.name(i)) for i in range(len(a))]
        == [(b.pictures.read(i), b.pictures.name(i)) for i in range(len(b))]
        for a, b in ((one.train, other.train), (one.val, other.val))
    )


@pytest.fixture
def in_memory(packed: Path) -> Iterator[str]:
    memory = fsspec.filesystem("memory")
    memory.put(str(packed), "/bucket/shards", recursive=True)
    yield "memory://bucket/shards"
    memory.rm("/bucket", recursive=True)


def test_opening_a_set_over_http_is_one_request(packed: Path) -> None:
    with served(packed) as site:
        data = open_dataset(site.url)
        assert site.asked == {FILE: 1}
        assert same(data, open_dataset(packed))
        shards = {path.name: 1 for path in packed.glob("*.tar")}
        assert site.asked == {FILE: 1} | shards  # each shard was fetched once
        assert same(open_dataset(f"{site.url}/{FILE}"), data)
        assert site.asked == {FILE: 2} | shards  # and is still in the cache


@pytest.mark.parametrize("read", ["cache", "range"])
def test_memory_and_ranges_give_the_same_set(packed: Path, in_memory: str, read: str, tmp_path: Path) -> None:
    data = open_dataset(f"{in_memory}/", options={"shard_read": read})
    assert same(data, open_dataset(packed))
    assert (tmp_path / "cache").exists() == (read == "cache")
    assert same(data, open_dataset(packed / FILE))
    assert same(data, open_dataset(f"file://{packed}"))


def test_ranged_reads_fetch_no_more_than_the_pictures(packed: Path) -> None:
    with served(packed) as site:
        data = open_dataset(site.url, options={"shard_read": "range"})
        before = site.sent
        sizes = sum(len(to_bytes(data.train.pictures.read(i))) for i in (3, 50))
        assert site.sent - before == sizes
        site.failures["train-000000.tar"] = 2
        assert data.train.pictures.read(0)
        site.ranges = False
        with pytest.raises(StorageError, match="served whole where a range was asked for"):
            data.train.pictures.read(0)


def test_a_set_travels_to_workers_without_its_open_files(packed: Path, in_memory: str) -> None:
    for source in (str(packed), in_memory):
        data = open_dataset(source)
        first = data.train.pictures.read(0)
        copy = pickle.loads(pickle.dumps(data.train))
        assert copy.pictures.read(0) == first


def test_a_summary_reads_packed_shards_by_many_threads(in_memory: str) -> None:
    found = summarise(open_dataset(in_memory))
    assert [part.checked for part in found.parts] == [60, 12]
    assert not any(part.broken or part.missing for part in found.parts)
    assert not found.same_file


def test_unknown_targets_and_dropped_pictures_come_through_an_address(tmp_path: Path) -> None:
    source = layouts.open_images(tmp_path / "data")
    pack(source, tmp_path / "out")
    original = open_dataset(source)
    with served(tmp_path / "out") as site:
        data = open_dataset(site.url)
        assert data.train.targets.counts().unknown.tolist() == original.train.targets.counts().unknown.tolist()
        assert data.train.targets.counts().unknown.sum() > 0
        dropped = open_dataset(site.url, options={"drop_unlabelled": True}).train
        assert (dropped.targets.positives_per_image() > 0).all()


def test_wrong_addresses_are_one_line(packed: Path, in_memory: str) -> None:
    with pytest.raises(DataError, match=r"memory://nowhere/shards\.parquet is not there.*index there"):
        open_dataset("memory://nowhere")
    with pytest.raises(DataError, match=r"give the folder that holds shards\.parquet"):
        open_dataset("s3://bucket/train-{000..012}.tar")
    with pytest.raises(ConfigError, match="only packed shards are read, not coco"):
        open_dataset(in_memory, format="coco")
    with pytest.raises(DataError, match="single-label needs exactly one label"):
        open_dataset(packed, options={"task": "single-label"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard_cache": 1e-5}, "must hold three windows of 8 shards, .* GB, got 1e-05. Raise it"),
        ({"shard_cache": 0}, "number of GB above 0, got 0"),
        ({"shard_cache": "many"}, "got 'many'"),
        ({"shard_window": -1}, "0 or more, got -1"),
        ({"shard_window": None}, "0 or more, got None"),
        ({"shard_window": 1.5}, "whole number, got 1.5"),
        ({"shard_read": "all"}, "one of cache, range"),
    ],
)
def test_wrong_options_are_one_line(in_memory: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_dataset(in_memory, options=options)


def test_shards_that_are_not_those_of_the_index_are_refused(packed: Path, tmp_path: Path) -> None:
    pack("scenes", tmp_path / "p", PackSettings(shard_pictures=10), options={"count": 20})
    data, path = open_dataset(tmp_path / "p"), tmp_path / "p" / "train-000000.tar"
    content = path.read_bytes()
    path.write_bytes(content[:3000])
    with pytest.raises(StorageError, match=r"train-000000\.tar was cut short .* 000000001\.png is not at its place"):
        data.train.pictures.read(1)
    with pytest.raises(DataError, match=r"train-000000\.tar must have the .* got 3,000: it is cut short"):
        open_dataset(tmp_path / "p")
    path.write_bytes(content[:2000] + bytes([content[2000] ^ 1]) + content[2001:])
    with pytest.raises(StorageError, match=r"train-000000\.tar was changed"):
        open_dataset(tmp_path / "p").train.pictures.read(0)
    path.unlink()
    assert isinstance(data.train.pictures, TarMembers)
    data.train.pictures.close()
    with pytest.raises(StorageError, match=r"train-000000\.tar: cannot be read \(No such file.*Check the disk"):
        data.train.pictures.read(0)
    with pytest.raises(DataError, match=r"of the index cannot be read \(No such file"):
        open_dataset(tmp_path / "p")


def test_an_index_that_is_none_or_too_new_is_said_so(packed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    picture(folder / "a.jpg")
    pq.write_table(pa.table({"path": ["a.jpg"], "labels": ["x|y"]}), folder / FILE)
    assert open_dataset(folder).format == "table"  # somebody's own table of that name
    memory = fsspec.filesystem("memory")
    memory.pipe("/odd/" + FILE, (folder / FILE).read_bytes())
    with pytest.raises(DataError, match="is not an index that mldecoder shard wrote"):
        open_dataset("memory://odd")
    memory.pipe("/odd/" + FILE, b"<html>")
    with pytest.raises(DataError, match="cannot be read as an index"):
        open_dataset("memory://odd")
    table = pq.read_table(packed / FILE)
    words = table.schema.metadata[b"mldecoder"].replace(b'"version": 1', b'"version": 2')
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({b"mldecoder": words}), sink)
    memory.pipe("/odd/" + FILE, sink.getvalue().to_pybytes())
    with pytest.raises(DataError, match=r"version 2, .* reads up to 1\. Upgrade"):
        open_dataset("memory://odd")
    pq.write_table(table.replace_schema_metadata({b"mldecoder": b'{"version": 1}'}), folder / FILE)
    with pytest.raises(DataError, match=r"is a damaged index of shards \('shards'\)"):
        open_dataset(folder)
    memory.rm("/odd", recursive=True)
