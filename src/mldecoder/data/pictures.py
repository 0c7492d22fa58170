"""Where pictures lie, and how their bytes are fetched: files, members of tar shards, arrays in memory."""

import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from mldecoder.data.remote import file_name, shown
from mldecoder.data.shard_store import LocalShards, ShardStore
from mldecoder.errors import DataError, StorageError

__all__ = ["Arrays", "Files", "PackedNames", "Picked", "Pictures", "TarMembers", "Windows", "pick", "shard_windows"]


class Pictures(Protocol):
    """A numbered collection of pictures."""

    def __len__(self) -> int: ...

    def name(self, i: int) -> str:
        """What a person recognises picture ``i`` by: its path below the dataset."""
        ...

    def read(self, i: int) -> bytes | Image.Image:
        """The file's bytes, or the picture where there never was a file."""
        ...


class PackedNames(Sequence[str]):
    """Many strings in two arrays: small, and shared by worker processes without being copied."""

    def __init__(self, names: Iterable[str]) -> None:
        encoded = [name.encode("utf-8", "surrogateescape") for name in names]
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        self._text = np.frombuffer(b"".join(encoded), dtype=np.uint8)

    @classmethod
    def of_arrays(cls, ends: NDArray[np.int64], text: NDArray[np.uint8]) -> "PackedNames":
        """Take over what a columnar file holds: where each string ends, after a first 0, and all text in a row."""
        names = cls.__new__(cls)
        names._ends, names._text = ends, text
        return names

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if i < 0:
            i += len(self)
        text = self._text[self._ends[i] : self._ends[i + 1]].tobytes()
        return text.decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))


class Files:
    """Picture files below one folder."""

    def __init__(self, root: str | Path, names: Iterable[str]) -> None:
        self.root = Path(root)
        self.names = names if isinstance(names, PackedNames) else PackedNames(names)

    def __len__(self) -> int:
        return len(self.names)

    def name(self, i: int) -> str:
        """The path below the folder."""
        return self.names[i]

    def path(self, i: int) -> Path:
        """The path on disk."""
        return self.root / self.names[i]

    def read(self, i: int) -> bytes:
        """The bytes of the file."""
        try:
            return self.path(i).read_bytes()
        except FileNotFoundError:
            raise DataError(f"{self.name(i)}: the file is missing.") from None
        except IsADirectoryError:
            raise DataError(f"{self.name(i)}: a folder, not a picture file.") from None
        except OSError as error:
            raise DataError(f"{self.name(i)}: cannot be read ({error.strerror}).") from None


class TarMembers:
    """Members of uncompressed tar files, found by their place in the file.

    Args:
        shards: The files, or what reads them.
        shard: Number of each member's file.
        offset: Where the member's content begins.
        size: Its bytes.
        names: Its name in the file.
        checks: CRC-32 of its content, where an index knows it.
        window: So many shards are read at a time in training; None where pictures are taken from all at once.
    """

    def __init__(
        self,
        shards: "Sequence[str | Path] | ShardStore",
        shard: ArrayLike,
        offset: ArrayLike,
        size: ArrayLike,
        names: Iterable[str],
        *,
        checks: ArrayLike | None = None,
        window: int | None = None,
    ) -> None:
        self.store: ShardStore = LocalShards(shards) if isinstance(shards, Sequence) else shards
        self.shard = np.asarray(shard, dtype=np.int32)
        self.offset = np.asarray(offset, dtype=np.int64)
        self.size = np.asarray(size, dtype=np.int64)
        self.names = names if isinstance(names, PackedNames) else PackedNames(names)
        self.checks = None if checks is None else np.asarray(checks, dtype=np.uint32)
        self.window = window

    def __len__(self) -> int:
        return len(self.names)

    @property
    def shards(self) -> tuple[str, ...]:
        """Path or address of each shard."""
        return self.store.places

    def name(self, i: int) -> str:
        """Shard and member, as in ``train-000000.tar/0001.jpg``."""
        return f"{file_name(self.shards[self.shard[i]])}/{self.names[i]}"

    def read(self, i: int) -> bytes:
        """The bytes of the member."""
        try:
            content = self.store.read(int(self.shard[i]), int(self.offset[i]), int(self.size[i]))
        except OSError as error:
            text = f"{shown(self.shards[self.shard[i]])}: cannot be read ({error.strerror})."
            if self.checks is not None:  # its index vouches for it: not a broken picture, but a disk that is gone
                raise StorageError(f"{text} Check the disk, or copy the shards again.") from None
            raise DataError(text) from None
        if self.checks is not None and (len(content) != self.size[i] or zlib.crc32(content) != self.checks[i]):
            what = "cut short" if len(content) < self.size[i] else "changed"
            raise StorageError(
                f"{shown(self.shards[self.shard[i]])} was {what} after its index was written: {self.names[i]} is not "
                f"at its place. Copy the shards and their index again."
            )
        return content

    def close(self) -> None:
        """Close the shards; reading opens them again."""
        self.store.close()


class Arrays:
    """Pictures in memory or in a mapped ``.npy`` file: uint8 ``(n, height, width, 3)``."""

    def __init__(self, images: NDArray[np.uint8], *, prefix: str = "") -> None:
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise DataError(
                f"Pictures in memory must be uint8 (n, height, width, 3), got {images.dtype} {images.shape}."
            )
        self.images = images
        self.prefix = prefix

    def __len__(self) -> int:
        return len(self.images)

    def __reduce__(self) -> tuple[object, ...]:
        # A mapped file travels to worker processes by its name, not by its content.
        if isinstance(self.images, np.memmap) and self.images.filename is not None:
            return (_mapped, (str(self.images.filename), self.prefix))
        return (_in_memory, (self.images, self.prefix))

    def name(self, i: int) -> str:
        """The prefix and the number."""
        return f"{self.prefix}{i}"

    def read(self, i: int) -> Image.Image:
        """The picture."""
        return Image.fromarray(np.asarray(self.images[i]))


def _mapped(path: str, prefix: str) -> Arrays:
    return Arrays(np.load(path, mmap_mode="r"), prefix=prefix)


def _in_memory(images: NDArray[np.uint8], prefix: str) -> Arrays:
    return Arrays(images, prefix=prefix)


class Picked:
    """Some pictures of another collection."""

    def __init__(self, pictures: Pictures, indices: ArrayLike) -> None:
        self.pictures = pictures
        self.indices = np.asarray(indices, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, i: int) -> str:
        """The name in the collection picked from."""
        return self.pictures.name(int(self.indices[i]))

    def read(self, i: int) -> bytes | Image.Image:
        """The picture in the collection picked from."""
        return self.pictures.read(int(self.indices[i]))


def pick(pictures: Pictures, indices: ArrayLike) -> Picked:
    """Some pictures of a collection, without stacking one choice on another."""
    chosen = np.asarray(indices, dtype=np.int64)
    if isinstance(pictures, Picked):
        return Picked(pictures.pictures, pictures.indices[chosen])
    return Picked(pictures, chosen)


class Windows(NamedTuple):
    """Pictures that are to be read a few shards at a time: the shard of each, and how many shards a window has."""

    shard: NDArray[np.int32]
    size: int


def shard_windows(pictures: Pictures) -> Windows | None:
    """How to take the pictures so that few shards are open at a time; None where that does not matter."""
    base = pictures.pictures if isinstance(pictures, Picked) else pictures
    if not isinstance(base, TarMembers) or not base.window:
        return None
    shard = base.shard[pictures.indices] if isinstance(pictures, Picked) else base.shard
    return Windows(shard, base.window)


def to_bytes(source: bytes | Image.Image) -> bytes:
    """The content of a picture, for comparing it with another."""
    if isinstance(source, bytes):
        return source
    buffer = io.BytesIO(f"{source.mode}{source.size}".encode())
    buffer.seek(0, io.SEEK_END)
    buffer.write(source.tobytes())
    return buffer.getvalue()
