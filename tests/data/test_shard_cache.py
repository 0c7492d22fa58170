"""Shards from an address on the local disk: whole, shared, bounded."""

import hashlib
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mldecoder.data import remote
from mldecoder.data.pictures import TarMembers
from mldecoder.data.shard_cache import RemoteShard, ShardCache, locked
from mldecoder.data.shard_store import CachedShards, LocalShards
from mldecoder.errors import ConfigError, DataError, StorageError
from tests.data.served import Served, served

SIZE = 1000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAUSE", 0.001)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "site").mkdir()
    for i in range(6):
        (tmp_path / "site" / f"{i}.tar").write_bytes(bytes([i]) * SIZE)
    with served(tmp_path / "site") as state:
        yield state


def shard(site: Served, i: int) -> RemoteShard:
    content = bytes([i]) * SIZE
    return RemoteShard(f"{site.url}/{i}.tar", SIZE, hashlib.sha256(content).hexdigest())


def held(cache: ShardCache) -> list[str]:
    return sorted(path.name.partition("-")[2] for path in cache.folder.glob("*.tar"))


def test_the_cache_stays_within_its_bound_and_keeps_what_was_opened_last(site: Served, tmp_path: Path) -> None:
    cache = ShardCache(3 * SIZE, tmp_path / "cache")
    for i in (0, 1, 2):
        os.close(cache.open(shard(site, i)))
        os.utime(next(cache.folder.glob(f"*-{i}.tar")), (i, i))
    os.close(cache.open(shard(site, 0)))  # was opened first, now last
    os.close(cache.open(shard(site, 3)))
    assert held(cache) == ["0.tar", "2.tar", "3.tar"]
    assert site.asked == {f"{i}.tar": 1 for i in range(4)}


def test_a_shard_is_fetched_once_for_many_processes(site: Served, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    cache = ShardCache(4 * SIZE, tmp_path / "cache")
    with context.Pool(4) as pool:
        sizes = pool.starmap(_read, [(cache, shard(site, i % 3)) for i in range(24)])
    assert sizes == [bytes([i % 3]) * SIZE for i in range(24)]
    assert site.asked == {f"{i}.tar": 1 for i in range(3)}
    assert not list(cache.folder.glob("*.part"))


def _read(cache: ShardCache, one: RemoteShard) -> bytes:
    descriptor = cache.open(one)
    try:
        return os.pread(descriptor, SIZE, 0)
    finally:
        os.close(descriptor)


def test_processes_that_need_more_than_the_bound_still_read_what_is_right(site: Served, tmp_path: Path) -> None:
    cache = ShardCache(2 * SIZE, tmp_path / "cache")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.starmap(_read, [(cache, shard(site, i % 6)) for i in range(60)])
    assert found == [bytes([i % 6]) * SIZE for i in range(60)]
    assert sum(path.stat().st_size for path in cache.folder.glob("*.tar")) <= cache.limit


def test_what_a_killed_process_left_is_cleared_away_and_what_another_fetches_is_counted(
    site: Served, tmp_path: Path
) -> None:
    cache = ShardCache(2 * SIZE, tmp_path / "cache")
    cache.fetch(shard(site, 0))
    dead, alive = (cache.folder / f"{'0' * 7}{n}{'0' * 8}-x.tar.{SIZE}.part" for n in (1, 2))
    dead.write_bytes(b"half")
    alive.write_bytes(b"half")
    with locked(cache._lock_of(alive)):
        cache.fetch(shard(site, 1))
    assert not dead.exists()
    assert alive.exists()
    assert held(cache) == ["1.tar"]  # the other one's claim counts with the whole size


def test_an_open_shard_can_be_read_after_it_was_deleted_and_is_let_go_of(site: Served, tmp_path: Path) -> None:
    shards = CachedShards([shard(site, i) for i in range(3)], ShardCache(SIZE, tmp_path / "cache"))
    assert shards.read(0, 10, 5) == bytes(5)
    shards.fetch(1)
    assert held(shards.cache) == ["1.tar"]
    assert shards.read(0, 990, 50) == bytes(10)
    assert site.asked["0.tar"] == 1
    assert shards.read(1, 0, 1) == b"\1"
    assert list(shards._open) == [1]  # the deleted file takes no room on the disk any more
    shards.close()


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.tar" for i in range(50)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]) * 3)
    shards = LocalShards(paths)
    assert [shards.read(i, 1, 1)[0] for i in [*range(50), *range(50)]] == [*range(50)] * 2
    assert len(shards._open) == 32
    paths[0].unlink()
    pictures = TarMembers(shards, [0], [0], [1], ["a.jpg"])
    with pytest.raises(DataError, match=r"0\.tar: cannot be read \(No such file"):
        pictures.read(0)


def test_requests_that_fail_are_made_again(site: Served, tmp_path: Path) -> None:
    cache = ShardCache(9 * SIZE, tmp_path / "cache")
    site.failures["0.tar"] = remote.TRIES - 1
    site.cut.add("1.tar")  # the line dies in the middle
    for i in (0, 1):
        assert cache.fetch(shard(site, i)).read_bytes() == bytes([i]) * SIZE
    assert (site.asked["0.tar"], site.asked["1.tar"]) == (remote.TRIES, 2)
    site.failures["2.tar"] = remote.TRIES
    with pytest.raises(StorageError, match=r"2\.tar could not be read in 5 tries \(status 503.*Check the network"):
        cache.fetch(shard(site, 2))
    with pytest.raises(StorageError, match=r"7\.tar is not there"):
        cache.fetch(shard(site, 7))
    assert site.asked["7.tar"] == 1
    assert not list(cache.folder.glob("*.part"))


def test_a_shard_that_is_not_what_the_index_says_is_refused(site: Served, tmp_path: Path) -> None:
    cache, right = ShardCache(9 * SIZE, tmp_path / "cache"), shard(site, 3)
    (site.folder / "3.tar").write_bytes(b"\3" * 900)
    with pytest.raises(StorageError, match=r"3\.tar must have the 1,000 bytes .* got 900: it is cut short"):
        cache.fetch(right)
    (site.folder / "3.tar").write_bytes(b"\3" * 999 + b"\4")
    with pytest.raises(StorageError, match=r"3\.tar was changed after its index was written"):
        cache.fetch(right)
    assert held(cache) == []


def test_a_full_disk_and_missing_rights_are_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Driver:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def get_file(self, *_: str) -> None:
            raise self.error

    for error, text in (
        (OSError(28, "No space left on device"), "disk is full .* MLDECODER_CACHE"),
        (PermissionError("Access Denied"), r"may not be read \(Access Denied\). Check the credentials"),
        (RuntimeError("Unable to locate credentials"), "Check the credentials"),
    ):
        monkeypatch.setattr(remote, "_driver", lambda _, error=error: Driver(error))
        with pytest.raises(StorageError, match=text):
            remote.download("s3://bucket/a.tar", tmp_path / "a")


def test_a_missing_driver_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    def absent(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", absent)
    with pytest.raises(ConfigError, match=r"s3:// needs a driver .* Run: pip install s3fs$"):
        remote.read("s3://bucket/a")
    with pytest.raises(ConfigError, match=r"gs:// needs a driver .* Run: pip install gcsfs$"):
        remote.read("gs://bucket/a")
    monkeypatch.setattr(fsspec, "filesystem", absent)
    with pytest.raises(ConfigError, match=r"https:// needs a driver .* Run: pip install aiohttp$"):
        remote.read("https://host/a")
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="no address that can be read"):
        remote.read("nosuch://host/a")


def test_addresses_keep_their_signature_and_do_not_show_it(site: Served) -> None:
    url = remote.join(f"{site.url}/?key=secret", "7.tar")
    assert url == f"{site.url}/7.tar?key=secret"
    assert remote.file_name(url) == remote.file_name(f"{site.url}/7.tar") == "7.tar"
    with pytest.raises(StorageError) as raised:
        remote.read(url)
    site.failures["0.tar"] = 99
    with pytest.raises(StorageError) as failed:
        remote.read(f"{site.url}/0.tar?key=secret")
    assert "secret" not in str(raised.value) + str(failed.value)
    assert [remote.is_url(word) for word in ("s3://a/b", "C:\\a", "C://a", "a/b.csv", "memory://x")] == [
        True,
        False,
        False,
        False,
        True,
    ]
