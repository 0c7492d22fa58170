"""Packed shards with their index: a folder or an address, opened by one read."""

from collections.abc import Callable, Sequence
from pathlib import Path

from mldecoder.data import remote
from mldecoder.data.dataset import Dataset, ImageSet, TarMembers, describe
from mldecoder.data.layout import Part, choose_val, labelled_only, note_unlabelled
from mldecoder.data.options import DataOptions
from mldecoder.data.shard_cache import RemoteShard, ShardCache
from mldecoder.data.shard_index import FILE, ShardInfo, is_index, read_index
from mldecoder.data.shard_store import CachedShards, LocalShards, RangedShards, ShardStore
from mldecoder.errors import ConfigError, DataError, StorageError

__all__ = ["index_of", "read", "read_url"]


def index_of(path: Path) -> Path | None:
    """The index of a folder of packed shards, or of its own path."""
    file = path / FILE if path.is_dir() else path
    return file if is_index(file) else None


def read(index: Path, options: DataOptions) -> Dataset:
    """Open packed shards on a disk."""
    folder = index.parent

    def store(shards: Sequence[ShardInfo]) -> ShardStore:
        for shard in shards:
            _check_size(folder / shard.file, shard)
        return LocalShards([folder / shard.file for shard in shards])

    return _dataset(index, str(index), store, options)


def read_url(url: str, options: DataOptions) -> Dataset:
    """Open packed shards at an address; one request, however many shards there are."""
    parts = url.partition("?")
    if parts[0].endswith(".tar"):
        raise DataError(
            f"Shards at an address are opened by their index: give the folder that holds {FILE}, "
            f"not {remote.shown(url)}."
        )
    base = parts[0].removesuffix("/").removesuffix(f"/{FILE}") + "".join(parts[1:])
    where = remote.join(base, FILE)
    try:
        content = remote.read(where)
    except StorageError as error:
        raise DataError(f"{error} What mldecoder shard wrote has its index there.") from None

    def store(shards: Sequence[ShardInfo]) -> ShardStore:
        there = [RemoteShard(remote.join(base, shard.file), shard.bytes, shard.sha256) for shard in shards]
        if options.shard_read == "range":
            return RangedShards(there)
        return CachedShards(there, ShardCache(_cache_limit(shards, options)))

    return _dataset(content, remote.shown(where), store, options)


def _dataset(
    content: Path | bytes, where: str, store: Callable[[Sequence[ShardInfo]], ShardStore], options: DataOptions
) -> Dataset:
    header, parts = read_index(content, where)
    if "train" not in parts:
        raise DataError(f"{where} has no pictures to train on; its parts are {', '.join(parts)}.")
    task = options.task or header.task
    if task == "single-label" and header.task == "multi-label":
        raise DataError(f"data.options.task=single-label needs exactly one label a picture; {where} has any number.")
    sets: dict[Part, ImageSet] = {}
    bare = 0
    for part, rows in parts.items():
        members = TarMembers(
            store(rows.shards),
            rows.shard,
            rows.offset,
            rows.size,
            rows.members,
            checks=rows.crc,
            window=options.shard_window or None,
        )
        sets[part], without = labelled_only(ImageSet(members, rows.targets, header.labels, task), options)
        bare += without
    val, notes = choose_val(sets, options)
    count = len(header.shards)
    found = f"{FILE} with {count} shard{'s' if count != 1 else ''}"
    return Dataset(
        sets["train"],
        val,
        header.name,
        "shards",
        describe("packed shards", sets["train"], val, found),
        notes + note_unlabelled(bare, options),
    )


def _check_size(path: Path, shard: ShardInfo) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"Shard {path} of the index cannot be read ({error.strerror}). Copy it again.") from None
    if size != shard.bytes:
        what = "cut short" if size < shard.bytes else "another file"
        raise DataError(
            f"{path} must have the {shard.bytes:,} bytes that its index says, got {size:,}: it is {what}. "
            f"Copy it again."
        )


def _cache_limit(shards: Sequence[ShardInfo], options: DataOptions) -> int:
    """Bytes of the cache; refused where they do not hold a window that ends, one that begins, and one that comes."""
    limit, window = round(options.shard_cache * 1e9), options.shard_window or len(shards)
    sizes = sorted((shard.bytes for shard in shards), reverse=True)
    need = sum(sizes[: 3 * window])
    if limit < need:
        raise ConfigError(
            f"data.options.shard_cache must hold three windows of {window} shards, {need / 1e9:.3g} GB, got "
            f"{options.shard_cache:g}. Raise it, lower data.options.shard_window, or set data.options.shard_read=range."
        )
    return limit
