import hashlib
import time
from pathlib import Path

import numpy as np
import pytest

from mldecoder.data import scenes, scenes_store
from mldecoder.data.detect import open_dataset
from mldecoder.data.options import DataOptions

SAMPLE = "d15abf3714568b7c9ae9819f77f114ff02cd52815672a0e892e834c93aff4f86"
WHOLE = "73b628f4d6a6d45670209de723f5a0934c7aff2145f8d642a349e752d7f343f8"


def digest(split: scenes.Split, count: int) -> bytes:
    state = hashlib.sha256()
    for i in range(count):
        image, labels = scenes.draw(i, split)
        state.update(image.tobytes())
        state.update(",".join(sorted(labels)).encode())
    return state.digest()


def test_the_first_pictures_are_the_same_on_every_machine() -> None:
    assert hashlib.sha256(digest("train", 64) + digest("val", 64)).hexdigest() == SAMPLE


@pytest.mark.slow
def test_all_pictures_are_the_same_on_every_machine() -> None:
    whole = digest("train", scenes.SIZES["train"]) + digest("val", scenes.SIZES["val"])
    assert hashlib.sha256(whole).hexdigest() == WHOLE


@pytest.mark.slow
def test_all_pictures_are_drawn_within_ten_seconds() -> None:
    start = time.process_time()
    for split in ("train", "val"):
        for i in range(600):
            scenes.draw(i, split)
    assert (time.process_time() - start) * 10 < 10  # 6 s was measured


def test_pictures_have_between_one_and_six_of_36_labels_about_37_in_ten() -> None:
    counts = []
    for i in range(300):
        image, labels = scenes.draw(i, "train")
        assert image.shape == (64, 64, 3)
        assert image.dtype == np.uint8
        assert labels <= set(scenes.LABELS)
        assert 1 <= len(labels) <= 6
        counts.append(len(labels))
    assert len(scenes.LABELS) == 36
    assert abs(np.mean(counts) - 3.7) < 0.2


def test_parts_and_pictures_differ_and_repeat() -> None:
    first = scenes.draw(5, "train")
    assert np.array_equal(first[0], scenes.draw(5, "train")[0])
    assert not np.array_equal(first[0], scenes.draw(6, "train")[0])
    assert not np.array_equal(first[0], scenes.draw(5, "val")[0])


@pytest.mark.parametrize(("shape", "share"), [("circle", 1.0), ("square", 0.64), ("triangle", 0.41), ("ring", 0.70)])
def test_shapes_cover_the_area_of_their_geometry(shape: str, share: float) -> None:
    grid = np.linspace(-29.5, 29.5, 60, dtype=np.float64)
    distance = scenes._DISTANCES[scenes.SHAPES.index(shape)](grid[None, :], grid[:, None], 20.0)
    area = np.clip(0.5 - distance, 0, 1).sum() / (np.pi * 400)
    assert area == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("shape", scenes.SHAPES)
def test_every_shape_stays_within_its_radius(shape: str) -> None:
    grid = np.linspace(-29.5, 29.5, 60, dtype=np.float64)
    distance = scenes._DISTANCES[scenes.SHAPES.index(shape)](grid[None, :], grid[:, None], 20.0)
    radius = np.hypot(grid[None, :], grid[:, None])
    assert radius[distance < 0].max() <= 20.5
    assert (distance < 0).sum() > 200


def test_unseen_pairs_leave_every_colour_and_shape_in_seen_ones() -> None:
    assert len(scenes.UNSEEN) == 9
    assert len(scenes.SEEN) == 27
    assert {"red circle", "purple ring", "red star", "green cross", "blue ring"} <= set(scenes.UNSEEN)
    assert {pair.split()[0] for pair in scenes.SEEN} == set(scenes.COLOURS)
    assert {pair.split()[1] for pair in scenes.SEEN} == set(scenes.SHAPES)


def test_a_few_scenes_need_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLDECODER_CACHE", str(tmp_path / "cache"))
    data = open_dataset("scenes", options={"count": 20})
    assert data.val is not None
    assert (len(data.train), len(data.val)) == (20, 4)
    assert data.description.startswith("scenes, 20 + 4 pictures, 36 labels")
    image, labels = scenes.draw(7, "train")
    assert np.array_equal(np.asarray(data.train.pictures.read(7)), image)
    assert {data.labels[j] for j in data.train.targets.positives(7)} == labels
    assert data.train.pictures.name(7) == "scenes/train/7"
    assert not (tmp_path / "cache").exists()


def test_many_scenes_are_kept_and_a_spoilt_cache_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLDECODER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scenes, "SIZES", {"train": 12, "val": 3})
    monkeypatch.setattr(scenes_store, "_SMALL", 0)
    first = scenes_store.read(DataOptions())
    assert len(list((tmp_path / "cache").iterdir())) == 4
    file = next((tmp_path / "cache").glob("*train-images.npy"))
    whole = file.read_bytes()
    del first
    for spoilt in (whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        file.write_bytes(spoilt)
        again = scenes_store.read(DataOptions())
        assert np.array_equal(np.asarray(again.train.pictures.read(11)), scenes.draw(11, "train")[0])
        assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MLDECODER_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(scenes, "SIZES", {"train": 5, "val": 2})
    monkeypatch.setattr(scenes_store, "_SMALL", 0)
    assert len(scenes_store.read(DataOptions()).train) == 5
