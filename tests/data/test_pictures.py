import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.data.dataset import Arrays, Files, ImageSet, Targets, TarMembers
from mldecoder.data.pictures import PackedNames, Picked, pick
from mldecoder.errors import DataError
from tests.data.picture_files import picture


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_packed_names_are_the_names(names: list[str]) -> None:
    packed = PackedNames(names)
    assert list(packed) == names
    assert packed[1:3] == names[1:3]
    assert list(pickle.loads(pickle.dumps(packed))) == names
    assert not names or packed[-1] == names[-1]


def test_files_read_bytes_and_name_what_is_missing(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png")
    (tmp_path / "folder.jpg").mkdir()
    files = Files(tmp_path, ["a/1.png", "a/2.png", "folder.jpg"])
    assert files.read(0) == (tmp_path / "a/1.png").read_bytes()
    with pytest.raises(DataError, match=r"a/2\.png: the file is missing"):
        files.read(1)
    with pytest.raises(DataError, match=r"folder\.jpg: a folder"):
        files.read(2)


def test_tar_members_are_read_by_their_place_also_after_travelling(tmp_path: Path) -> None:
    for i in range(3):
        picture(tmp_path / f"{i}.png", seed=i)
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for i in range(3):
            archive.add(tmp_path / f"{i}.png", f"{i}.png")
    with tarfile.open(tmp_path / "s.tar") as archive:
        members = archive.getmembers()
    pictures = TarMembers(
        [tmp_path / "s.tar"], [0] * 3, [m.offset_data for m in members], [m.size for m in members], ["0", "1", "2"]
    )
    for copy in (pictures, pickle.loads(pickle.dumps(pictures))):
        assert [copy.read(i) for i in (2, 0, 1)] == [(tmp_path / f"{i}.png").read_bytes() for i in (2, 0, 1)]
        assert copy.name(1) == "s.tar/1"
        copy.close()


def test_arrays_travel_by_file_name_when_they_are_mapped(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (200, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "i.npy", images)
    mapped = Arrays(np.load(tmp_path / "i.npy", mmap_mode="r"), prefix="x/")
    sent = pickle.dumps(mapped)
    assert len(sent) < 1000 < len(pickle.dumps(Arrays(images)))
    assert np.array_equal(np.asarray(pickle.loads(sent).read(7)), images[7])
    assert mapped.name(7) == "x/7"


def test_arrays_of_another_kind_are_refused() -> None:
    with pytest.raises(DataError, match="must be uint8"):
        Arrays(np.zeros((2, 3, 4, 4), dtype=np.uint8))


def test_picking_twice_is_picking_once() -> None:
    images = np.arange(5, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), dtype=np.uint8)
    twice = pick(pick(Arrays(images), [4, 3, 2]), [2, 0])
    assert isinstance(twice.pictures, Arrays)
    assert isinstance(twice, Picked)
    assert [twice.name(i) for i in range(2)] == ["2", "4"]


def test_an_image_set_needs_a_row_a_picture_and_a_column_a_label() -> None:
    images = Arrays(np.zeros((2, 4, 4, 3), dtype=np.uint8))
    with pytest.raises(DataError, match="2 pictures, 1 rows"):
        ImageSet(images, Targets.from_lists([[0]], num_classes=1), ("a",))
    with pytest.raises(DataError, match="2 labels, 1 columns"):
        ImageSet(images, Targets.from_lists([[0], []], num_classes=1), ("a", "b"))
    two = ImageSet(images, Targets.from_lists([[0], [1]], num_classes=2), ("a", "b"))
    assert two.keep_labels(["b"]).targets.rows([0, 1]).tolist() == [[0], [1]]
    assert two.select([1]).targets.row(0).tolist() == [0, 1]
    with pytest.raises(DataError, match="got 'c'"):
        two.keep_labels(["c"])
