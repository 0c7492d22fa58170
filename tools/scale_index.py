"""What a picture takes in packed shards beside its own bytes: in the tar file, the index, memory, an epoch's order."""

import tempfile
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from mldecoder.data.pictures import Windows
from mldecoder.data.shard_index import Header, Rows, ShardInfo, read_index, schema, write_index
from mldecoder.data.shard_writer import pack
from mldecoder.training.order import EpochBatches

__all__ = ["file_bytes", "index_bytes", "order_bytes", "tar_bytes"]

_LABELS, _LISTED = 80, 3  # as many as COCO has, and about as many a picture
_SHARD = 20_000  # pictures of a shard


def file_bytes(folder: Path) -> tuple[int, float]:
    """How many picture files lie in a folder, and their mean size."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg", ".png"}]
    return len(sizes), fmean(sizes)


def tar_bytes(count: int) -> float:
    """Bytes a picture in shards beyond those of its file: two tar headers, padding, and ``key.json``."""
    with tempfile.TemporaryDirectory() as folder:
        packed = pack("scenes", folder, options={"count": count})
        parts = read_index(Path(folder) / "shards.parquet", folder)[1]
        own = sum(int(rows.size.sum()) for rows in parts.values())
        return (sum(shard.bytes for shard in packed.shards) - own) / sum(packed.counts.values())


def index_bytes(count: int) -> tuple[float, float]:
    """Bytes a picture in the file of an index, and in memory once it is read; sizes, checks and labels are random."""
    first = range(0, count, _SHARD)
    shards = tuple(
        ShardInfo(f"train-{n:06}.tar", "train", min(_SHARD, count - start), 0, "0" * 64)
        for n, start in enumerate(first)
    )
    labels = tuple(f"label {i}" for i in range(_LABELS))
    header = Header("drawn", "multi-label", labels, shards, {"train": 0}, "random rows", "", "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shards.parquet"
        write_index(path, header, _tables(first, count))
        rows = read_index(path, folder)[1]["train"]
        return path.stat().st_size / count, sum(_held(rows)) / count


def order_bytes(count: int) -> float:
    """Bytes a picture at the highest, while the order of an epoch is computed."""
    windows = Windows(np.arange(count, dtype=np.int32) // _SHARD, 8)
    tracemalloc.start()
    try:
        next(iter(EpochBatches(count, 1000, seed=0, windows=windows)))
        return tracemalloc.get_traced_memory()[1] / count
    finally:
        tracemalloc.stop()


def _tables(first: Iterable[int], count: int) -> Iterator[Any]:
    import pyarrow as pa

    rng = np.random.default_rng(0)
    for number, start in enumerate(first):
        rows = min(_SHARD, count - start)
        size = rng.normal(10_000, 3_000, rows).clip(1_000).astype(np.int64)
        listed = rng.poisson(_LISTED, rows)
        ends = np.concatenate([[0], np.cumsum(listed)])
        columns = {
            "shard": np.full(rows, number, np.int32),
            "offset": np.cumsum(size + 2048) - size,
            "size": size,
            "crc": rng.integers(0, 2**32, rows, dtype=np.uint32),
            "member": [f"{i:09}.jpg" for i in range(start, start + rows)],
            "name": [f"images/{i:012}.jpg" for i in rng.integers(0, 10**6, rows)],  # packing mixes them
            "labels": pa.LargeListArray.from_arrays(ends, rng.integers(0, _LABELS, ends[-1], dtype=np.int32)),
            "values": pa.LargeListArray.from_arrays(ends, np.ones(ends[-1], np.int8)),
        }
        yield pa.table(columns, schema=schema())


def _held(rows: Rows) -> Iterator[int]:
    names, targets = rows.members, rows.targets
    yield from (array.nbytes for array in (rows.shard, rows.offset, rows.size, rows.crc, names._ends, names._text))
    yield from (array.nbytes for array in (targets.indptr, targets.columns, targets.values))
