"""What is left to tag, in a file that all machines can read: a source a line, cut into blocks.

A block becomes one part of the output. Its bounds follow from the list of all sources alone, whatever was done before,
and its part is named by its content: a block that is tagged twice writes the same part twice.
"""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from mldecoder.errors import DataError
from mldecoder.predict.inputs import Source
from mldecoder.predict.member import Member

__all__ = ["Block", "blocks_of", "part_name", "read_block", "rows_a_block", "write_todo"]

GRAIN = 32
"""Bounds of blocks are multiples of this: as many pictures as are scored together by default."""

_FEWEST_BLOCKS, _MOST_BLOCKS, _ROWS = 64, 16_384, 1024


@dataclass(frozen=True)
class Block:
    """A range of bytes of the file, and how many sources are in it."""

    offset: int
    length: int
    count: int


def rows_a_block(total: int) -> int:
    """Sources a block: few blocks would leave machines idle, very many would keep the first one busy with counting.

    Example:
        >>> rows_a_block(200), rows_a_block(5_000), rows_a_block(1_000_000), rows_a_block(100_000_000)
        (32, 96, 1024, 6112)
    """
    wish = max(min(_ROWS, -(-total // _FEWEST_BLOCKS)), -(-total // _MOST_BLOCKS))
    return max(1, -(-wish // GRAIN)) * GRAIN


def write_todo(
    path: Path,
    sources: Iterable[Source],
    done: Callable[[str], bool],
    *,
    listed: Callable[[int], None] = lambda _count: None,
) -> list[Block]:
    """Write the sources that are not done; of memory only their number matters, a byte or less each.

    Args:
        path: The file to write.
        sources: All sources, those done before too.
        done: Whether a name was done before.
        listed: Is told now and then how many sources there are so far.
    """
    ends, counts, total, place, left = array("Q"), array("B"), 0, 0, 0
    with path.open("wb") as file:
        for source in sources:
            total += 1
            if not done(source.name):
                place += file.write(_line(source))
                left += 1
            if total % GRAIN == 0:
                ends.append(place)
                counts.append(left)
                left = 0
            if total % 10_000 == 0:
                listed(total)
        ends.append(place)
        counts.append(left)
    return list(blocks_of(ends, counts, rows_a_block(total) // GRAIN))


def blocks_of(ends: "array[int]", counts: "array[int]", grains: int) -> Iterator[Block]:
    """So many grains make a block; blocks with nothing in them are left out."""
    start = 0
    for first in range(0, len(ends), grains):
        end = ends[min(first + grains, len(ends)) - 1]
        if end > start:
            yield Block(start, end - start, sum(counts[first : first + grains]))
        start = end


def read_block(path: Path, offset: int, length: int, base: Path) -> tuple[str, list[Source]]:
    """The name of a block's part, and its sources; paths are seen from ``base``."""
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read(length)
    if len(content) < length:
        raise DataError(f"{path} must reach to byte {offset + length}, it ends at {offset + len(content)}.")
    return part_name(content), [_source(line, base) for line in content.splitlines()]


def part_name(content: bytes) -> str:
    """A name for the part of a block; digits only, as parts that one machine writes have a number."""
    return f"part-{int.from_bytes(blake2b(content, digest_size=8).digest(), 'big'):020}.parquet"


def _line(source: Source) -> bytes:
    what: list[object] = [source.name]
    if isinstance(source.content, Member):
        what += [str(source.content.shard), source.content.offset, source.content.size]
    elif isinstance(source.content, DataError):
        what.append(str(source.content))
    elif not isinstance(source.content, Path):
        raise DataError(f"{source.name} must lie in a file, to be read on other machines.")
    return json.dumps(what).encode() + b"\n"  # ASCII: names that are not UTF-8 come back as they were


def _source(line: bytes, base: Path) -> Source:
    name, *more = json.loads(line)
    if not more:
        return Source(name, base / name)
    if len(more) == 1:
        return Source(name, DataError(more[0]))
    return Source(name, Member(base / more[0], *more[1:]))
