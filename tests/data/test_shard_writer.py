"""Packing: the same pictures and targets come out, killed or not."""

import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mldecoder.data import shard_writer
from mldecoder.data.dataset import UNKNOWN, Dataset, ImageSet
from mldecoder.data.decode import decode
from mldecoder.data.detect import open_dataset
from mldecoder.data.options import DataOptions
from mldecoder.data.pictures import to_bytes
from mldecoder.data.shard_cache import locked
from mldecoder.data.shard_index import FILE
from mldecoder.data.shard_plan import open_parts
from mldecoder.data.shard_tar import Content, ShardFile, content_of
from mldecoder.data.shard_writer import PackSettings, pack
from mldecoder.errors import ConfigError, DataError
from tests.cli import run
from tests.data import formats
from tests.data.formats import jpeg, shard
from tests.data.picture_files import picture, write
from tests.training.test_readers_train import CASES

SMALL = PackSettings(shard_pictures=3)


def by_content(part: ImageSet) -> dict[bytes, list[list[int]]]:
    """The targets of each picture by the bytes of its file; the slow and obvious way to compare two sets."""
    found: dict[bytes, list[list[int]]] = {}
    for i in range(len(part)):
        found.setdefault(to_bytes(part.pictures.read(i)), []).append(part.targets.row(i).tolist())
    return {content: sorted(rows) for content, rows in found.items()}


def decoded(part: ImageSet) -> dict[bytes, list[list[int]]]:
    """The targets of each picture by what it looks like."""
    found: dict[bytes, list[list[int]]] = {}
    for i in range(len(part)):
        found.setdefault(to_bytes(decode(part.pictures.read(i))), []).append(part.targets.row(i).tolist())
    return {content: sorted(rows) for content, rows in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_every_format_comes_out_as_it_went_in(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    source = case.make(tmp_path / "data")
    options = {key: json.loads(value) for key, _, value in (word.partition("=") for word in case.options)}
    original = open_dataset(source, options=options)
    packed = pack(source, tmp_path / "out", SMALL, options=options)
    assert not packed.broken
    for index in (True, False):  # also without its index, as plain shards, labels and unknowns are those of key.json
        if not index:
            (tmp_path / "out" / FILE).unlink()
        # plain shards of two classes are taken for tags
        again = open_dataset(tmp_path / "out", options={} if index else {"task": original.task})
        assert again.labels == original.labels
        assert again.task == original.task
        for ours, theirs in ((again.train, original.train), (again.val, original.val)):
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                assert decoded(ours) == decoded(theirs)
                if isinstance(theirs.pictures.read(0), bytes):  # else there is no file that could be copied
                    assert by_content(ours) == by_content(theirs)
    if case.unknown:
        assert (again.train.targets.rows(range(len(again.train))) == UNKNOWN).any()


def three_parts(root: Path) -> Path:
    for number, part in enumerate(("train", "val", "test")):
        for i in range(number + 2):
            for label in ("cat", "dog", "hot dog"):
                picture(root / part / label / f"{i}.jpg", seed=100 * number + 10 * i + len(label))
    return root


def test_parts_keep_their_names(tmp_path: Path) -> None:
    packed = pack(three_parts(tmp_path / "data"), tmp_path / "out")
    assert packed.counts == {"train": 6, "val": 9, "test": 12}
    names = ["test-000000.tar", "train-000000.tar", "val-000000.tar"]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.tar")) == names
    data = open_dataset(tmp_path / "out")
    assert data.val is not None
    assert (data.task, len(data.val)) == ("single-label", 9)
    assert "The test part (12 pictures) is left out" in data.notes[0]
    other = open_dataset(tmp_path / "out", options={"val_part": "test"})
    assert other.val is not None
    assert len(other.val) == 12
    assert list(open_parts(tmp_path / "out", None, DataOptions())[1]) == ["train", "val", "test"]
    again = pack(tmp_path / "out", tmp_path / "again", SMALL)  # packed shards are a dataset too
    assert again.counts == packed.counts


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # that package leaves files open
def test_the_webdataset_package_reads_our_shards(tmp_path: Path) -> None:
    webdataset: Any = pytest.importorskip("webdataset")
    pack(formats.column_a_label(tmp_path / "data"), tmp_path / "out", PackSettings(shuffle=False))
    shards = webdataset.WebDataset(str(tmp_path / "out" / "train-000000.tar"), shardshuffle=False)
    samples = list(shards.decode("pil"))
    assert [sample["__key__"] for sample in samples] == ["000000000", "000000001"]
    assert samples[0]["json"] == {"labels": ["cat"], "unknown": ["hot dog"], "name": "a.jpg"}
    assert samples[1]["json"] == {"labels": ["dog"], "unknown": ["cat"], "name": "b.jpg"}
    original = Image.open(tmp_path / "data" / "a.jpg")
    assert np.array_equal(np.asarray(samples[0]["jpg"]), np.asarray(original))


def test_classes_may_be_called_by_numbers(tmp_path: Path) -> None:
    for i, label in enumerate(("3", "7", "10", "7")):
        picture(tmp_path / "data" / label / f"{i}.jpg", seed=i)
    pack(tmp_path / "data", tmp_path / "out")
    for _ in range(2):
        data = open_dataset(tmp_path / "out")
        assert set(data.labels) == {"3", "7", "10"}
        assert data.train.targets.counts().positives[data.labels.index("7")] == 2
        (tmp_path / "out" / FILE).unlink(missing_ok=True)


def test_shards_end_by_count_or_by_size(tmp_path: Path) -> None:
    folder = formats.shards(tmp_path)
    by_count = pack(folder, tmp_path / "count", PackSettings(shard_pictures=4))
    assert [shard.samples for shard in by_count.shards] == [4, 2, 1]
    by_size = pack(folder, tmp_path / "size", PackSettings(shard_mb=0.001))
    assert [shard.samples for shard in by_size.shards] == [1] * 7
    for packed in (by_count, by_size):
        for info in packed.shards:
            assert (packed.folder / info.file).stat().st_size == info.bytes


def test_mixing_is_for_training_and_a_function_of_the_seed(tmp_path: Path) -> None:
    source = formats.shards(tmp_path)
    plain = open_dataset(source).train
    want = [plain.pictures.read(i) for i in range(6)]

    def read(settings: PackSettings, name: str) -> list[bytes | Image.Image]:
        pack(source, tmp_path / name, settings)
        part = open_dataset(tmp_path / name).train
        return [part.pictures.read(i) for i in range(6)]

    assert read(PackSettings(shuffle=False), "a") == want
    mixed = read(PackSettings(), "b")
    assert mixed != want
    assert read(PackSettings(), "c") == mixed
    assert read(PackSettings(seed=1), "d") != mixed


def test_only_large_pictures_are_made_smaller(tmp_path: Path) -> None:
    small, large = picture(tmp_path / "d" / "small.png", size=(20, 16)), tmp_path / "d" / "large.png"
    picture(large, size=(90, 60))
    table = write(tmp_path / "d" / "t.csv", "path,labels\nsmall.png,a|b\nlarge.png,a\n")
    pack(table, tmp_path / "out", PackSettings(size=30, shuffle=False))
    train = open_dataset(tmp_path / "out").train
    assert train.pictures.read(0) == small.read_bytes()
    assert decode(train.pictures.read(1)).size == (45, 30)
    assert train.pictures.name(1).endswith("000000001.jpg")


def broken_set(root: Path) -> Path:
    folder = root / "shards"
    members: dict[str, bytes] = {}
    for i in range(8):
        content = {2: b"", 5: b"not a picture", 7: jpeg(root, 7)[:300]}.get(i, jpeg(root, i))
        members |= {f"{i}.jpg": content, f"{i}.txt": b"a|b" if i % 2 else b"a"}
    shard(folder / "all.tar", members)
    return folder


def test_broken_files_are_left_out_and_listed(tmp_path: Path) -> None:
    packed = pack(broken_set(tmp_path), tmp_path / "out", PackSettings(shuffle=False, shard_pictures=2))
    assert [(one.name, one.reason.partition(" ")[0]) for one in packed.broken] == [
        ("all.tar/2.jpg", "zero"),
        ("all.tar/5.jpg", "not"),
        ("all.tar/7.jpg", "truncated:"),
    ]
    assert packed.counts == {"train": 5}
    listed = [json.loads(line)["name"] for line in (tmp_path / "out" / "broken.jsonl").read_text().splitlines()]
    assert listed == [one.name for one in packed.broken]
    assert pack(broken_set(tmp_path), tmp_path / "out", PackSettings(shuffle=False, shard_pictures=2)).broken == (
        packed.broken
    )
    unchecked = pack(broken_set(tmp_path), tmp_path / "raw", PackSettings(check=False))
    assert unchecked.counts == {"train": 8}
    shard(tmp_path / "bad" / "b.tar", {"0.jpg": b"", "0.txt": b"a"})
    with pytest.raises(DataError, match=r"No picture of the training part can be packed; the first: b\.tar/0\.jpg"):
        pack(tmp_path / "bad", tmp_path / "none")


def test_what_waits_to_be_written_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, written, most = [0], [0], [0]
    add = ShardFile.add

    def counted_content(image_set: ImageSet, i: int, *, size: int | None, check: bool) -> Content:
        read[0] += 1
        most[0] = max(most[0], read[0] - written[0])
        return content_of(image_set, i, size=size, check=check)

    def counted_add(self: ShardFile, key: str, content: Content, image_set: ImageSet, i: int) -> None:
        add(self, key, content, image_set, i)
        written[0] += 1

    monkeypatch.setattr(shard_writer, "content_of", counted_content)
    monkeypatch.setattr(ShardFile, "add", counted_add)
    pack("scenes", tmp_path / "out", options={"count": 200})
    assert read == written == [240]
    assert most[0] <= shard_writer._AHEAD + 2


def killed(source: Path, out: Path, settings: PackSettings, after: str) -> None:
    """Start a packing in its own process and kill that as soon as a shard is there."""
    process = multiprocessing.get_context("fork").Process(target=pack, args=(source, out, settings))
    process.start()
    while not (out / ".packing" / f"{after}.parquet").exists():
        assert process.is_alive(), "it was over before it could be killed"
        time.sleep(0.001)
    process.kill()
    process.join()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.tar"))}


def test_a_killed_packing_goes_on_behind_the_last_whole_shard(tmp_path: Path) -> None:
    for i in range(240):
        picture(tmp_path / "data" / "abc"[i % 3] / f"{i}.jpg", seed=i)
    source, out, settings = tmp_path / "data", tmp_path / "out", PackSettings(shard_pictures=3)
    killed(source, out, settings, "train-000003.tar")
    assert not (out / FILE).exists()
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    recorded = len(list((out / ".packing").glob("*.parquet")))
    with pytest.raises(ConfigError, match="other settings, that was not finished"):
        pack(source, out, PackSettings(shard_pictures=4))
    packed = pack(source, out, settings)
    assert packed.kept == recorded >= 4
    kept = sum(path.stat().st_mtime_ns == when for path, when in before.items())
    assert kept == recorded >= len(before) - 1  # one may have been whole without its record
    assert pack(source, tmp_path / "whole", settings).kept == 0
    assert contents(out) == contents(tmp_path / "whole")
    assert (out / FILE).read_bytes() == (tmp_path / "whole" / FILE).read_bytes()
    assert not list(out.glob(".*"))


def test_a_folder_of_other_shards_is_not_touched(tmp_path: Path) -> None:
    data: Dataset = open_dataset("scenes", options={"count": 6})
    assert len(data.train) == 6
    pack("scenes", tmp_path / "out", SMALL, options={"count": 6})
    with pytest.raises(ConfigError, match="shards of other data"):
        pack("scenes", tmp_path / "out", SMALL, options={"count": 7})
    foreign = formats.shards(tmp_path)
    with pytest.raises(ConfigError, match="holds shards already"):
        pack("scenes", foreign, SMALL, options={"count": 6})
    assert not (foreign / ".packing").exists()
    (tmp_path / "busy" / ".packing").mkdir(parents=True)
    with locked(tmp_path / "busy" / ".packing" / "lock"), pytest.raises(ConfigError, match="Another process"):
        pack("scenes", tmp_path / "busy", SMALL, options={"count": 6})
    with pytest.raises(ConfigError, match="Pack there, then copy it"):
        pack("scenes", "s3://bucket/out", SMALL)
    with pytest.raises(ConfigError, match="is a file"):
        pack("scenes", write(tmp_path / "file", ""), SMALL, options={"count": 6})
    with pytest.raises(ConfigError, match="more than 0 MB, got -1"):
        PackSettings(shard_mb=-1)


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    result = run("shard", str(broken_set(tmp_path)), str(tmp_path / "out"), "--shard-size", "1")
    assert result.returncode == 0, result.stderr
    assert "1 shards, 5 train pictures" in result.stdout
    assert "- all.tar/2.jpg: zero bytes" in result.stdout
    assert "mldecoder train --data" in result.stdout
    wrong = run("shard", str(tmp_path / "nothing"), str(tmp_path / "other"))
    assert wrong.returncode == 1
    assert "does not exist" in wrong.stderr
    assert len(wrong.stderr.strip().splitlines()) == 1
