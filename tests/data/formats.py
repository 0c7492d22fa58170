"""Tiny datasets in the formats that people keep their own pictures in: tables, shards, Hugging Face.

Each builder takes a folder and returns what a user would give as ``--data``.
"""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.data.picture_files import picture, write

# Tables. The pets have the columns of a list made from the Oxford-IIIT Pet dataset's annotations,
# https://www.robots.ox.ac.uk/~vgg/data/pets/: file, breed, split; pictures in images/.


def pets(root: Path) -> Path:
    rows = [("Abyssinian_1.jpg", "Abyssinian", "trainval"), ("pug_2.jpg", "pug", "trainval")]
    rows += [("beagle_3.jpg", "beagle", "test"), ("pug_4.jpg", "pug", "test")]
    for i, row in enumerate(rows):
        picture(root / "images" / row[0], seed=i)
    write(root / "list.csv", "file,breed,split\n" + "".join(",".join(row) + "\n" for row in rows))
    write(root / "README.md", "Pets")
    return root / "list.csv"


def column_a_label(root: Path) -> Path:
    """One column a label: yes, no, and two spellings of unknown."""
    for name in "ab":
        picture(root / f"{name}.jpg")
    return write(root / "t.csv", "filename,cat,dog,hot dog,note\na.jpg,1,0,-1,fine\nb.jpg,,1.0,0,blurred\n")


def _records(root: Path) -> list[dict[str, object]]:
    for name in "abc":
        picture(root / f"{name}.jpg")
    lists = {"a": ["x", "y"], "b": [], "c": ["x"]}
    return [{"image": f"{name}.jpg", "labels": labels} for name, labels in lists.items()]


def json_lines(root: Path) -> Path:
    return write(root / "t.jsonl", "".join(json.dumps(record) + "\n" for record in _records(root)))


def json_list(root: Path) -> Path:
    return write(root / "t.json", json.dumps(_records(root)))


def parquet(root: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(_records(root))
    pq.write_table(table, root / "t.parquet")
    return root / "t.parquet"


# Tar shards: members named as in "The WebDataset Format", https://github.com/webdataset/webdataset


def shard(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def jpeg(folder: Path, seed: int) -> bytes:
    """The content of a small picture."""
    return picture(folder / "made" / f"{seed}.jpg", seed).read_bytes()


def shards(root: Path) -> Path:
    folder = root / "shards"
    for number in range(3):
        members: dict[str, bytes] = {}
        for i in range(2):
            key = f"{number}{i}"
            members |= {f"{key}.jpg": jpeg(root, 2 * number + i), f"{key}.cls": str((number + i) % 3).encode()}
        shard(folder / f"imagenet-train-{number:06}.tar", members)
    shard(folder / "imagenet-val-000000.tar", {"v.jpg": jpeg(root, 9), "v.cls": b"2"})
    write(folder / "classnames.txt", "tench\ngoldfish\nshark\n")
    return folder


# Hugging Face: what DatasetDict.save_to_disk writes, https://huggingface.co/docs/datasets/process#save


def saved(root: Path, feature: object, train: list[Any], test: list[Any], name: str = "label") -> Path:
    """A saved dataset whose label column has the feature and the cells."""
    datasets: Any = pytest.importorskip("datasets")
    parts = {}
    for part, cells in (("train", train), ("test", test)):
        files = [str(picture(root / "files" / f"{part}{i}.png", seed=i)) for i in range(len(cells))]
        features = datasets.Features({"image": datasets.Image(), name: feature})
        parts[part] = datasets.Dataset.from_dict({"image": files, name: cells}, features=features)
    datasets.DatasetDict(parts).save_to_disk(str(root / "saved"))
    return root / "saved"


def hugging_face(root: Path) -> Path:
    datasets: Any = pytest.importorskip("datasets")
    return saved(root, datasets.ClassLabel(names=["cat", "dog"]), [0, 1, 1], [0])
