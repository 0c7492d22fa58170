from pathlib import Path

import pytest
import torch
from torch import Tensor

from mldecoder.text import ENCODERS, cache_folder, encode_labels
from mldecoder.text.towers import Network, Tower

from .files import write_text


class Counting:
    """A tower that counts how often it is loaded and what it reads."""

    def __init__(self) -> None:
        self.loads = 0
        self.read: list[str] = []
        self.stamp = "1"

    def tower(self, _: str) -> Tower:
        return Tower("counting", self.load, self.stamp)

    def load(self) -> Network:
        self.loads += 1
        return Network(2, self.encode)

    def encode(self, texts: list[str]) -> Tensor:
        self.read += texts
        return torch.tensor([[float(len(text)), 1.0] for text in texts])


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    found = Counting()
    monkeypatch.setitem(ENCODERS, "counting", found.tower)
    return found


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.*"))


def test_a_tower_reads_a_list_of_labels_once(counting: Counting, cache_of_this_test: Path) -> None:
    first = encode_labels(["dog", "horse"], "counting")
    loads = counting.loads
    assert torch.equal(encode_labels(["dog", "horse"], "counting"), first)
    assert (counting.loads, counting.read) == (loads, ["dog", "horse"])  # not even loaded again
    assert [path.suffix for path in files(cache_of_this_test)] == [".safetensors"]


def test_other_labels_options_and_files_are_read_anew(counting: Counting, cache_of_this_test: Path) -> None:
    encode_labels(["dog", "horse"], "counting")
    encode_labels(["horse", "dog"], "counting")
    encode_labels(["dog", "horse"], "counting", templates=["a {}"])
    encode_labels(["dog", "horse"], "counting", descriptions={"dog": ["a pet"]})
    counting.stamp = "2"
    encode_labels(["dog", "horse"], "counting")
    assert len(counting.read) == 10
    assert len(files(cache_of_this_test)) == 5
    raw = encode_labels(["dog", "horse"], "counting", normalise=False)  # scaling is done after the cache
    assert len(counting.read) == 10
    assert raw.tolist() == [[3.0, 1.0], [5.0, 1.0]]


def test_the_cache_is_off_when_told_and_for_word_vectors(counting: Counting, cache_of_this_test: Path) -> None:
    for _ in range(2):
        encode_labels(["dog"], "counting", cache=False)
        encode_labels(["dog"], "glove-50")
        encode_labels(["dog"], lambda texts: torch.ones(len(texts), 3))
    assert counting.read == ["dog", "dog"]
    assert not files(cache_of_this_test)


def test_a_folder_can_be_chosen_and_word_vectors_kept(tmp_path: Path) -> None:
    path = write_text(tmp_path / "v.txt", {"dog": [3.0, 4.0]})
    for _ in range(2):
        found = encode_labels(["dog"], f"words:{path}", cache=tmp_path / "kept")
        torch.testing.assert_close(found, torch.tensor([[0.6, 0.8]]))
    assert len(files(tmp_path / "kept")) == 1
    write_text(path, {"dog": [4.0, 3.0], "cat": [1.0, 1.0]})  # the file changed: not what was kept
    assert encode_labels(["dog"], f"words:{path}", cache=tmp_path / "kept")[0, 0] > 0.7


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "text"])
def test_a_damaged_file_is_made_again(counting: Counting, cache_of_this_test: Path, damage: str) -> None:
    first = encode_labels(["dog", "horse"], "counting")
    [path] = files(cache_of_this_test)
    whole = path.read_bytes()
    broken = {"cut": whole[:-3], "empty": b"", "flipped": whole[:-1] + bytes([whole[-1] ^ 1]), "text": b"hello"}[damage]
    path.write_bytes(broken)
    assert torch.equal(encode_labels(["dog", "horse"], "counting"), first)
    assert counting.read == ["dog", "horse"] * 2
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(counting: Counting, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert encode_labels(["dog"], "counting", cache=tmp_path / "file" / "folder").shape == (1, 2)


def test_a_failed_write_leaves_no_file_behind(
    counting: Counting, cache_of_this_test: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", full)
    encode_labels(["dog"], "counting")
    assert not files(cache_of_this_test)


def test_the_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("MLDECODER_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" / "text"
    monkeypatch.delenv("MLDECODER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "mldecoder" / "text"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "mldecoder" / "text"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "mldecoder" / "text"
