"""Folders, lists and shards as pictures, each once."""

import io
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from mldecoder.errors import DataError
from mldecoder.predict.listed import check_paths, listed
from tests.predict.pictures import scene, write_scenes


def pack(shard: Path, names: list[str], *, first: int = 0) -> None:
    """A tar file with drawn pictures, and a text beside each."""
    with tarfile.open(shard, "w") as archive:
        for i, name in enumerate(names):
            file = io.BytesIO()
            scene(first + i).save(file, "PNG")
            for member, content in ((f"{name}.png", file.getvalue()), (f"{name}.txt", b"red ring")):
                entry = tarfile.TarInfo(member)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def names(*paths: Path) -> list[str]:
    return [source.name for source in listed(paths)]


def test_pictures_of_a_shard_are_read_from_their_place(tmp_path: Path) -> None:
    pack(tmp_path / "a.tar", ["000", "sub/001", ".hidden"])
    found = list(listed([tmp_path / "a.tar"]))
    assert [source.name for source in found] == [f"{tmp_path}/a.tar/000.png", f"{tmp_path}/a.tar/sub/001.png"]
    for i, source in enumerate(found):
        assert source.read().tobytes() == scene(i).tobytes()


def test_shards_are_found_in_a_folder_beside_loose_pictures_and_by_numbers_in_braces(tmp_path: Path) -> None:
    for i in range(3):
        pack(tmp_path / f"s-{i:02}.tar", [str(i)], first=i)
    scene(9).save(tmp_path / "loose.png")
    assert [Path(name).name for name in names(tmp_path)] == ["loose.png", "0.png", "1.png", "2.png"]
    assert [Path(name).name for name in names(tmp_path / "s-{01..02}.tar")] == ["1.png", "2.png"]
    assert len(names(tmp_path, tmp_path / "s-00.tar")) == 4


def test_a_torn_shard_gives_what_is_whole_and_a_reason(tmp_path: Path) -> None:
    pack(tmp_path / "a.tar", ["0", "1", "2"])
    whole = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(whole[: len(whole) // 2])
    *good, bad = listed([tmp_path / "a.tar"])
    assert good
    assert bad.name == str(tmp_path / "a.tar")
    with pytest.raises(DataError, match="not a whole, uncompressed tar file"):
        bad.read()
    (tmp_path / "no.tar").write_bytes(b"no tar")
    [bad] = listed([tmp_path / "no.tar"])
    with pytest.raises(DataError, match="not a whole, uncompressed tar file"):
        bad.read()
    source = good[0]
    (tmp_path / "a.tar").unlink()
    with pytest.raises(DataError, match="the shard is missing"):
        source.read()


def test_a_list_names_pictures_seen_from_its_folder_each_once(tmp_path: Path) -> None:
    paths = write_scenes(tmp_path / "pictures", 4)
    lines = [str(path.relative_to(tmp_path)) for path in paths]
    (tmp_path / "list.txt").write_text("\n".join([*lines, "", lines[0], str(paths[1]), "gone.png"]) + "\n")
    assert names(tmp_path / "list.txt") == [*map(str, paths), str(tmp_path / "gone.png")]
    assert sorted(names(tmp_path / "list.txt", tmp_path / "pictures")) == sorted(
        [*map(str, paths), str(tmp_path / "gone.png")]
    )
    assert names(paths[0], tmp_path / "list.txt")[:4] == list(map(str, paths))
    assert isinstance(next(iter(listed([tmp_path / "list.txt"]))).read(), Image.Image)


def test_names_of_nothing_and_places_without_a_picture_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no file or folder .*s-00.tar"):
        check_paths([tmp_path / "s-{00..01}.tar"])
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(DataError, match=r"There is no picture in .*empty.txt"):
        check_paths([tmp_path / "empty.txt"])
