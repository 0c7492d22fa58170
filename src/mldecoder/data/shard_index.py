"""The index beside packed shards: one Parquet file that says where every picture lies and what is known of it.

A row is a picture: ``shard`` (number), ``offset``, ``size`` and ``crc`` of its content, ``member`` (its name in the
shard), ``name`` (what it was called before), ``labels`` and ``values`` (targets that differ from the part's default).
Rows stand in the order of the shards, shards in the order of the parts. Everything else is JSON in the file's metadata.
Opening a set, wherever it lies, is reading this file.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mldecoder.data.dataset import Targets, Task
from mldecoder.data.layout import Part
from mldecoder.data.pictures import PackedNames
from mldecoder.errors import DataError

__all__ = ["FILE", "Header", "Rows", "ShardInfo", "is_index", "read_header", "read_index", "schema", "write_index"]

FILE = "shards.parquet"
_KEY = b"mldecoder"
_VERSION = 1
_GROUP = 500_000  # rows of a row group, at least


@dataclass(frozen=True)
class ShardInfo:
    """One shard: its file, its part, and by what a whole copy is known."""

    file: str
    part: Part
    samples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Header:
    """What an index says of the set as a whole."""

    name: str
    task: Task
    labels: tuple[str, ...]
    shards: tuple[ShardInfo, ...]
    defaults: Mapping[Part, int]  # what targets are that no row lists
    source: str  # what was packed, in words
    package: str  # version of this package
    plan: str  # digest of what was packed and how, by which a packing knows its own
    version: int = _VERSION


@dataclass(frozen=True)
class Rows:
    """The pictures of one part, in columns; ``shard`` counts from the part's first."""

    shards: tuple[ShardInfo, ...]
    shard: NDArray[np.int32]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    crc: NDArray[np.uint32]
    members: PackedNames
    targets: Targets


def schema() -> Any:  # noqa: ANN401 - pyarrow has no types
    """The columns of an index."""
    import pyarrow as pa

    return pa.schema(
        [
            ("shard", pa.int32()),
            ("offset", pa.int64()),
            ("size", pa.int64()),
            ("crc", pa.uint32()),
            ("member", pa.large_string()),
            ("name", pa.large_string()),
            ("labels", pa.large_list(pa.int32())),
            ("values", pa.large_list(pa.int8())),
        ]
    )


def write_index(path: Path, header: Header, tables: Iterable[Any]) -> None:
    """Write the index from one table a shard; it is complete or not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = path.with_name(f".{path.name}.part")
    described = schema().with_metadata({_KEY: json.dumps(asdict(header), ensure_ascii=False).encode()})
    with pq.ParquetWriter(part, described, compression="zstd") as writer:
        waiting: list[Any] = []
        for table in tables:
            waiting.append(table)
            if sum(map(len, waiting)) >= _GROUP:
                writer.write_table(pa.concat_tables(waiting).cast(described))
                waiting.clear()
        if waiting:
            writer.write_table(pa.concat_tables(waiting).cast(described))
    part.replace(path)


def is_index(path: Path) -> bool:
    """Whether a file is an index of ours."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.name != FILE or not path.is_file():
        return False
    try:
        return _KEY in (pq.read_schema(path).metadata or {})
    except (pa.ArrowInvalid, OSError):
        return False


def read_header(path: Path) -> Header:
    """What an index says of the set as a whole, without its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _header(pq.read_schema(path).metadata or {}, str(path))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read as an index of shards ({str(error).splitlines()[0]}).") from None


def read_index(content: Path | bytes, where: str) -> tuple[Header, dict[Part, Rows]]:
    """Read an index, from a file or from the bytes that an address gave.

    Args:
        content: The file, or all of it.
        where: What to call it in an error.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(io.BytesIO(content) if isinstance(content, bytes) else content) as file:
            header = _header(file.schema_arrow.metadata or {}, where)
            table = file.read(columns=[name for name in schema().names if name != "name"]).combine_chunks()
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{where} cannot be read as an index of shards ({str(error).splitlines()[0]}).") from None
    expected = sum(shard.samples for shard in header.shards)
    if len(table) != expected:
        raise DataError(f"{where} must have a row for each of {expected:,} pictures, got {len(table):,}. Pack again.")
    return header, dict(_parts(header, table))


def _header(metadata: Mapping[bytes, bytes], where: str) -> Header:
    if _KEY not in metadata:
        raise DataError(f"{where} is not an index that mldecoder shard wrote.")
    try:
        content = json.loads(metadata[_KEY])
        if content["version"] <= _VERSION:
            shards = tuple(ShardInfo(**shard) for shard in content["shards"])
            return Header(**(content | {"labels": tuple(content["labels"]), "shards": shards}))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{where} is a damaged index of shards ({error}). Pack again.") from None
    raise DataError(
        f"{where} is an index of version {content['version']}, written by mldecoder {content.get('package')}; this "
        f"one reads up to {_VERSION}. Upgrade mldecoder."
    )


def _parts(header: Header, table: Any) -> Iterator[tuple[Part, Rows]]:  # noqa: ANN401
    first = 0
    for part, default in header.defaults.items():
        shards = tuple(shard for shard in header.shards if shard.part == part)
        count = sum(shard.samples for shard in shards)
        rows = table.slice(first, count)
        number = rows["shard"].to_numpy().astype(np.int32)
        yield (
            part,
            Rows(
                shards,
                number - (number[0] if count else 0),
                rows["offset"].to_numpy(),
                rows["size"].to_numpy(),
                rows["crc"].to_numpy(),
                _names(rows["member"]),
                _targets(rows, len(header.labels), default),
            ),
        )
        first += count


def _names(column: Any) -> PackedNames:  # noqa: ANN401
    array = _flat(column)
    _, ends, text = array.buffers()
    bounds = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
    return PackedNames.of_arrays(bounds, np.frombuffer(text if text is not None else b"", np.uint8))


def _targets(rows: Any, num_classes: int, default: int) -> Targets:  # noqa: ANN401
    labels, values = _flat(rows["labels"]), _flat(rows["values"])
    bounds = labels.offsets.to_numpy()
    columns = labels.values.to_numpy()[bounds[0] : bounds[-1]]
    starts = values.offsets.to_numpy()
    known = values.values.to_numpy()[starts[0] : starts[-1]]
    return Targets(bounds - bounds[0], columns, known, num_classes, default)


def _flat(column: Any) -> Any:  # noqa: ANN401
    """One array of a column of one chunk or none."""
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
