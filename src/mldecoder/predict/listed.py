"""What a user points at, as pictures: folders and files, lists of them (``.txt``, a path a line), tar shards."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from mldecoder.data.shards import expand
from mldecoder.errors import DataError
from mldecoder.predict.inputs import Source, named_files
from mldecoder.predict.member import members

__all__ = ["check_paths", "listed"]


def listed(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Source]:
    """All pictures below some paths, each once.

    Files and folders are read as :func:`named_files` does it. A ``.txt`` file lists paths, one a line, seen from the
    folder it lies in; a ``.tar`` file holds pictures, and so do the tar files at the top of a folder.
    ``train-{000000..000012}.tar`` means thirteen of them. Of memory only the length of lists matters.
    """
    plain: list[Path] = []
    shards: dict[str, Path] = {}
    lists: dict[str, Path] = {}
    for path in written_out(paths):
        kind = path.suffix.lower()
        if path.is_dir():
            shards.update((str(shard), shard) for shard in sorted(path.glob("*.tar")))
            plain.append(path)
        elif kind in {".tar", ".txt"}:
            (shards if kind == ".tar" else lists)[str(path)] = path
        else:
            plain.append(path)
    if any(path.is_dir() for path in plain):  # a file may be in a folder and in a list: one place must know of both
        yield from named_files([*plain, *(path for file in lists.values() for path in _lines(file))])
    else:
        yield from _once([*plain, *lists.values()], set(lists.values()))
    for shard in shards.values():
        yield from _members(shard)


def written_out(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """The paths, with ``{0..9}`` written out where no file has such a name."""
    for given in paths:
        path = Path(given)
        if path.exists():
            yield path
        else:
            yield from (path.parent / name for name in expand(path.name))


def check_paths(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Refuse names of nothing, and places without a picture, before a model is loaded."""
    given = [Path(path) for path in paths]
    for path in written_out(given):
        if not path.exists():
            raise DataError(f"There is no file or folder {path}.")
    if not any(True for _ in listed(given)):
        raise DataError(f"There is no picture in {', '.join(map(str, given))}.")


def _once(files: Iterable[Path], lists: Collection[Path]) -> Iterator[Source]:
    said: set[str] = set()
    for file in files:
        for path in _lines(file) if file in lists else [file]:
            place = os.path.abspath(path)  # noqa: PTH100  (resolve follows links)
            if place not in said:
                said.add(place)
                yield Source(str(path), path)


def _members(shard: Path) -> Iterator[Source]:
    try:
        for name, member in members(shard):
            yield Source(f"{shard}/{name}", member)
    except DataError as error:
        yield Source(str(shard), error)


def _lines(file: Path) -> Iterator[Path]:
    try:
        with file.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
            for line in lines:
                if name := line.rstrip("\r\n"):
                    yield file.parent / name
    except OSError as error:
        raise DataError(f"The list {file} cannot be read ({error.strerror}).") from None
