from pathlib import Path

import numpy as np
import pytest

from mldecoder.errors import ConfigError, DataError
from mldecoder.text import WordTable, encoder, read_words

from .files import write_bin, write_npz, write_text

VECTORS = {"dog": [1.0, 2.0, 3.0], "café": [0.5, -1.0, 0.25], "traffic_light": [4.0, 0.0, 1.0]}


@pytest.mark.parametrize(
    "name",
    [
        "glove.txt",
        "crlf.txt",
        "fasttext.vec",
        "word2vec.txt",
        "small.txt.gz",
        "new.bin",
        "old.bin",
        "half.npz",
        "names.npz",
    ],
)
def test_every_layout_gives_the_same_words_and_vectors(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".npz"):
        write_npz(path, VECTORS, np.float16 if name == "half.npz" else np.float32)
    elif name.endswith(".bin"):
        write_bin(path, VECTORS, newline=name == "old.bin")
    else:
        ending = {"crlf.txt": "\r\n", "fasttext.vec": " \n"}.get(name, "\n")  # fastText ends its lines with a blank
        write_text(path, VECTORS, header=name in {"fasttext.vec", "word2vec.txt"}, ending=ending)
    table = read_words(path)
    assert table.words == list(VECTORS)
    assert table.vectors.dtype == np.float32
    np.testing.assert_array_equal(table.vectors, list(VECTORS.values()))


def test_a_word_with_blanks_in_a_glove_file_is_read(tmp_path: Path) -> None:
    path = write_text(tmp_path / "glove.txt", {"a": [1.0, 2.0], ". . .": [3.0, 4.0]})
    assert read_words(path).words == ["a", ". . ."]


def test_a_long_file_is_read_in_blocks(tmp_path: Path) -> None:
    vectors = {f"w{i}": [float(i), 1.0] for i in range(25_000)}
    table = read_words(write_text(tmp_path / "long.txt", vectors))
    np.testing.assert_array_equal(table.vectors[:, 0], np.arange(25_000))
    assert table.rows["w12345"] == 12345


def test_the_first_of_two_equal_entries_counts_and_rows_of_zeros_are_unknown() -> None:
    table = WordTable(["a", "b", "a"], np.array([[1.0], [0.0], [2.0]], dtype=np.float32))
    assert table.rows == {"a": 0}


def test_a_file_is_read_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = write_text(tmp_path / "v.txt", {"dog": [1.0]})
    first = read_words(path)
    assert read_words(path) is first
    write_text(path, {"dog": [2.0], "cat": [1.0]})
    assert read_words(path).words == ["dog", "cat"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"dog 1 2\ncat 1 x\n", r"must hold a word and 2 numbers a line, got 'cat 1 x'"),
        ("v.txt", b"dog 1 2\ncat 1\n", "must hold a word and 2 numbers a line, got 'cat 1'"),
        ("v.txt", b"", "must hold a word and its numbers"),
        ("v.txt", b"dog\n", "must hold a word and its numbers"),
        ("v.vec", b"1 2\n", "no word vectors"),
        ("v.txt", b"dog nan 1\n", "finite numbers, got others for 'dog'"),
        ("v.bin", b"2 2\ndog \0\0\0\0", "promises 2 words and ends after 0"),
        ("v.bin", b"hello", "count width"),
        ("v.bin", (793712314).to_bytes(4, "little") + b"\0\0", "fastText model.*Use its .vec"),
        ("v.npz", b"PK", "cannot be read as npz"),
        ("v.txt.gz", b"not gzip", "cannot be read"),
    ],
)
def test_a_broken_file_is_named_in_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_words(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_npz_with_other_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", names=np.array(["a"]), vectors=np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"names \(n,\) and vectors \(n, width\), got names \(1,\), vectors \(2, 3\)"):
        read_words(tmp_path / "v.npz")
    np.savez(tmp_path / "o.npz", names=np.array(["a"], dtype=object), vectors=np.zeros((1, 3)))
    with pytest.raises(DataError, match="cannot be read as npz"):
        read_words(tmp_path / "o.npz")


def test_a_missing_file_and_an_unknown_ending_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must exist, got .*none.txt"):
        encoder(f"words:{tmp_path}/none.txt")
    (tmp_path / "v.csv").write_text("a,1")
    with pytest.raises(ConfigError, match=r"must end in .txt, .vec, .npz, .bin, got 'v.csv'"):
        encoder(f"words:{tmp_path}/v.csv")
