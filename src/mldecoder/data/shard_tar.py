"""Writing one shard: an uncompressed tar file of ``key.jpg`` and ``key.json``; equal pictures give equal bytes."""

import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from mldecoder.data.dataset import UNKNOWN, ImageSet
from mldecoder.data.decode import decode
from mldecoder.data.layout import EXTENSIONS
from mldecoder.data.shard_index import schema

__all__ = ["Content", "ShardFile", "content_of"]

_QUALITY = 92  # of a JPEG that had to be made smaller
_MAGIC = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG", ".png"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"II*\0", ".tif"),
    (b"MM\0*", ".tif"),
)


class Content(NamedTuple):
    """A picture ready to be packed."""

    data: bytes
    extension: str


def content_of(image_set: ImageSet, i: int, *, size: int | None, check: bool) -> Content:
    """A picture's file as it is; made smaller only where asked for, written anew only where there was no file.

    Args:
        image_set: The set.
        i: Number of the picture.
        size: Pictures whose shorter side is longer than this are made smaller.
        check: Decode the picture, to see whether it can be.

    Raises:
        DataError: when there is no whole picture.
    """
    source = image_set.pictures.read(i)
    if isinstance(source, Image.Image):
        made, extension = source, ".png"
        if size is not None and min(made.size) > size:
            made = _smaller(decode(made), size)
        buffer = io.BytesIO()
        made.save(buffer, "PNG")
        return Content(buffer.getvalue(), extension)
    if size is not None or check:
        picture = decode(source)
        if size is not None and min(picture.size) > size:
            buffer = io.BytesIO()
            _smaller(picture, size).save(buffer, "JPEG", quality=_QUALITY)
            return Content(buffer.getvalue(), ".jpg")
    return Content(source, _extension(source, image_set.pictures.name(i)))


def _smaller(picture: Image.Image, size: int) -> Image.Image:
    scale = size / min(picture.size)
    width, height = (max(size, round(side * scale)) for side in picture.size)
    return picture.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)


def _extension(data: bytes, name: str) -> str:
    """What the content says, else what the name says."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    found = next((extension for magic, extension in _MAGIC if data.startswith(magic)), None)
    suffix = Path(name).suffix.lower()
    return found or (suffix if suffix in EXTENSIONS else ".jpg")


class ShardFile:
    """A shard in the making. It lies aside until :meth:`finish` gives it its name.

    Args:
        path: The file.
        number: Of the shard, in the index.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number = path, number
        self.size = 0
        self._part = path.with_name(f".{path.name}.part")
        self._file = self._part.open("wb")
        self._digest = hashlib.sha256()
        self._columns: dict[str, list[Any]] = {name: [] for name in schema().names}

    def __len__(self) -> int:
        return len(self._columns["shard"])

    def add(self, key: str, content: Content, image_set: ImageSet, i: int) -> None:
        """Append a picture and what is known of it."""
        member = f"{key}{content.extension}"
        offset = self._write(member, content.data)
        name, targets = image_set.pictures.name(i), image_set.targets
        listed = slice(targets.indptr[i], targets.indptr[i + 1])
        labels, values = targets.columns[listed], targets.values[listed]
        record = _record(image_set, labels.tolist(), values.tolist()) | {"name": name}
        self._write(f"{key}.json", json.dumps(record, ensure_ascii=False).encode("utf-8", "replace"))
        row = {
            "shard": self.number,
            "offset": offset,
            "size": len(content.data),
            "crc": zlib.crc32(content.data),
            "member": member,
            "name": name.encode("utf-8", "replace").decode(),
            "labels": labels,
            "values": values,
        }
        for column, value in row.items():
            self._columns[column].append(value)

    def finish(self) -> tuple[Any, int, str]:
        """End the file and give it its name; returns its rows for the index, its size and its SHA-256."""
        import pyarrow as pa

        self._put(bytes(2 * tarfile.BLOCKSIZE))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self.path)
        return pa.table(self._columns, schema=schema()), self.size, self._digest.hexdigest()

    def discard(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self._part.unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> int:
        """Append a member; returns where its content begins."""
        header = tarfile.TarInfo(name)
        header.size, header.mode = len(data), 0o644
        self._put(header.tobuf(tarfile.GNU_FORMAT))
        offset = self.size
        self._put(data)
        self._put(bytes(-len(data) % tarfile.BLOCKSIZE))
        return offset

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)


def _record(image_set: ImageSet, labels: Sequence[int], values: Sequence[int]) -> dict[str, object]:
    """The content of ``key.json``: labels by name, and what is unknown, or known to be absent."""
    by_value: dict[int, list[str]] = {1: [], 0: [], UNKNOWN: []}
    for label, value in zip(labels, values, strict=True):
        by_value[value].append(image_set.labels[label])
    if image_set.task == "single-label" and len(by_value[1]) == 1:
        return {"label": by_value[1][0]}
    record: dict[str, object] = {"labels": by_value[1]}
    if image_set.targets.default == UNKNOWN:
        record |= {"negatives": by_value[0], "others": "unknown"}
    elif by_value[UNKNOWN]:
        record["unknown"] = by_value[UNKNOWN]
    return record
