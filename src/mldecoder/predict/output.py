"""Results on disk, so that a run that was killed at any moment can go on: every file is in there exactly once.

JSON lines and CSV grow at their end; a last line that was cut off is taken away before going on. Parquet is a folder of
parts, each complete or not there. Files that could not be read are listed beside the output, in ``OUT.broken.csv``.
"""

import csv
import json
import os
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mldecoder.errors import ConfigError
from mldecoder.predict.prediction import Prediction

__all__ = ["Format", "Output", "csv_lines", "json_lines", "write_part", "written_name"]

Format = Literal["json", "csv", "parquet"]

_SEPARATOR = "|"
_COLUMNS = ("path", "tags", "scores")
_BROKEN = ("path", "reason")
_SCHEMA = pa.schema([("path", pa.string()), ("tags", pa.list_(pa.string())), ("scores", pa.list_(pa.float32()))])
_ROWS, _SECONDS = 4096, 60.0  # a part of Parquet is written when it has so many rows, or after so long


class Output:
    """Where results go; an output that is there already is gone on with.

    Args:
        path: The file, or the folder for Parquet.
        format: ``"json"`` (one object a line), ``"csv"`` or ``"parquet"``.
        settings: What the results depend on. Going on with other settings is refused.
        overwrite: Begin anew.
    """

    def __init__(self, path: Path, format: Format, settings: Mapping[str, object], *, overwrite: bool = False) -> None:
        self.path = path
        self.broken_path = path.with_name(f"{path.name}.broken.csv")
        self._settings_path = path.with_name(f"{path.name}.settings.json")
        if path.exists() and path.is_dir() != (format == "parquet"):
            kind = "a folder" if path.is_dir() else "a file"
            raise ConfigError(f"{path} is {kind}, which --{format} cannot go on with. Pass another name.")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path)
        try:
            if overwrite:
                self._remove()
            self._check(settings)
            self._broken = _Lines(self.broken_path, header=_BROKEN)
            self._results: _Lines | _Parts = (
                _Parts(path) if format == "parquet" else _Lines(path, header=_COLUMNS if format == "csv" else None)
            )
            self.done = _Names(chain(self._results.names(), self._broken.names()))
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, predictions: Sequence[Prediction]) -> None:
        """Add results; those with an error go to the list of broken files."""
        self._results.add([one for one in predictions if one.error is None])
        broken = [(written_name(one.name), one.error or "") for one in predictions if one.error is not None]
        if broken:
            self._broken.append(_rows(broken))

    def close(self) -> None:
        """Write what is left, and let others have the files."""
        self._results.close()
        self._broken.close()
        if not self._broken.anything:
            self.broken_path.unlink(missing_ok=True)
        _lock_path(self.path).unlink(missing_ok=True)
        self._lock.close()

    def _check(self, settings: Mapping[str, object]) -> None:
        wish = json.dumps(settings, sort_keys=True, indent=2) + "\n"
        if self._settings_path.is_file():
            then = json.loads(self._settings_path.read_text(encoding="utf-8"))
            now = json.loads(wish)
            other = sorted(key for key in {*then, *now} if then.get(key) != now.get(key))
            if other:
                raise ConfigError(
                    f"{self.path} was begun with another {other[0]} ({_short(then.get(other[0]))}, now "
                    f"{_short(now.get(other[0]))}). Pass --overwrite to begin anew, or another name."
                )
        elif self.path.exists():
            raise ConfigError(
                f"{self.path} exists and was not written by this command. Pass --overwrite, or another name."
            )
        part = self._settings_path.with_name(f".{self._settings_path.name}.part")
        part.write_text(wish, encoding="utf-8")
        part.replace(self._settings_path)

    def _remove(self) -> None:
        if self.path.is_dir():
            for part in [*self.path.glob("part-*.parquet"), *self.path.glob(".part-*")]:
                part.unlink()
            if not any(self.path.iterdir()):
                self.path.rmdir()
        for file in (self.path, self.broken_path, self._settings_path):
            if file.is_file():
                file.unlink()


class _Lines:
    """A text file that grows by whole records."""

    def __init__(self, path: Path, *, header: Sequence[str] | None) -> None:
        self.path, self.header = path, header
        path.touch()
        self._cut_off_the_torn_end()
        self._file: BinaryIO = path.open("ab", buffering=0)
        if header is not None and self._file.tell() == 0:
            self._file.write(_rows([header]))
        self.anything = any(True for _ in self.names())

    def names(self) -> Iterator[str]:
        """The files that are in there."""
        with self.path.open(encoding="utf-8", newline="") as file:
            if self.header is None:
                yield from (json.loads(line)["path"] for line in file)
            else:
                rows = csv.reader(file)
                next(rows, None)
                yield from (row[0] for row in rows)

    def add(self, predictions: Sequence[Prediction]) -> None:
        """Write results."""
        if predictions:
            self.append(json_lines(predictions) if self.header is None else csv_lines(predictions))

    def append(self, content: bytes) -> None:
        """Write records in one go: what a kill can tear is the end of the file."""
        self.anything = True
        view = memoryview(content)
        while view:
            view = view[self._file.write(view) :]

    def close(self) -> None:
        self._file.close()

    def _cut_off_the_torn_end(self) -> None:
        """A record is whole up to a line end outside of quotation marks."""
        whole = place = quotes = 0
        with self.path.open("r+b") as file:
            for line in file:
                place += len(line)
                quotes += line.count(b'"') if self.header is not None else 0
                if line.endswith(b"\n") and quotes % 2 == 0:
                    whole = place
            file.truncate(whole)


class _Parts:
    """A folder of Parquet files; a part appears under its name only when it is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        for torn in folder.glob(".part-*"):
            torn.unlink()
        self._waiting: list[Prediction] = []
        self._written = time.monotonic()
        self._number = 1 + max((int(part.stem.split("-")[1]) for part in self._parts()), default=-1)

    def names(self) -> Iterator[str]:
        for part in self._parts():
            yield from pq.read_table(part, columns=["path"])["path"].to_pylist()

    def add(self, predictions: Sequence[Prediction]) -> None:
        self._waiting += predictions
        if len(self._waiting) >= _ROWS or time.monotonic() - self._written > _SECONDS:
            self._write()

    def close(self) -> None:
        self._write()

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.parquet"))

    def _write(self) -> None:
        if not self._waiting:
            return
        write_part(self.folder, f"part-{self._number:06}.parquet", self._waiting)
        self._number += 1
        self._written = time.monotonic()
        self._waiting = []


def write_part(folder: Path, name: str, predictions: Sequence[Prediction]) -> None:
    """Write results as one Parquet file that is complete or not there; whoever writes it a second time replaces it."""
    rows = {
        "path": [written_name(one.name) for one in predictions],
        "tags": [[tag.label for tag in one.tags] for one in predictions],
        "scores": [[tag.score for tag in one.tags] for one in predictions],
    }
    torn = folder / f".{name}.{uuid4().hex}"  # two processes may write the same part at the same time
    pq.write_table(pa.table(rows, schema=_SCHEMA), torn)
    torn.replace(folder / name)


class _Names:
    """Which names were seen, in eight bytes each: ten million of them take 80 MB.

    That two of ten million names have the same eight bytes has a chance of three in a million.
    """

    def __init__(self, names: Iterable[str]) -> None:
        hashes = array("Q", (self._hash(name) for name in names))
        self._hashes = np.sort(np.frombuffer(hashes, dtype=np.uint64)) if hashes else np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, name: str) -> bool:
        wanted = np.uint64(self._hash(written_name(name)))
        place = int(np.searchsorted(self._hashes, wanted))
        return place < len(self._hashes) and bool(self._hashes[place] == wanted)

    @staticmethod
    def _hash(name: str) -> int:
        return int.from_bytes(blake2b(name.encode("utf-8"), digest_size=8).digest(), "little")


def written_name(name: str) -> str:
    """A file's name as text: bytes that are not UTF-8 are written as ``\\xff``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def json_lines(predictions: Iterable[Prediction]) -> bytes:
    """One JSON object a line."""
    made = (one.to_dict() | {"path": written_name(one.name)} for one in predictions)
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in made).encode("utf-8", "backslashreplace")


def csv_lines(predictions: Iterable[Prediction], *, header: bool = False) -> bytes:
    """One picture a row: its path, its tags and their scores, separated by ``|``."""
    rows = [
        (
            written_name(one.name),
            _SEPARATOR.join(tag.label.replace(_SEPARATOR, "/") for tag in one.tags),
            _SEPARATOR.join(f"{tag.score:.4f}" for tag in one.tags),
        )
        for one in predictions
    ]
    return _rows([_COLUMNS, *rows] if header else rows)


def _rows(rows: Iterable[Sequence[str]]) -> bytes:
    """CSV with plain line ends; Python's own writer would then leave a carriage return in a name unquoted."""
    return "".join(",".join(map(_cell, row)) + "\n" for row in rows).encode("utf-8", "backslashreplace")


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\r\n') else text


def _locked(path: Path) -> BinaryIO:
    """Hold a file while the output is written: two processes at once would list files twice."""
    lock = _lock_path(path).open("ab")
    try:
        import fcntl
    except ImportError:  # Windows: no lock there
        return lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ConfigError(f"Another process is writing {path}. Wait for it, or pass another name.") from None
    return lock


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
