"""Where pictures lie, and how their bytes are fetched: files, members of tar shards, arrays in memory."""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from mldecoder.errors import DataError

__all__ = ["Arrays", "Files", "PackedNames", "Picked", "Pictures", "TarMembers", "pick"]


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
    """Members of uncompressed tar files, found by their place in the file."""

    def __init__(
        self,
        shards: Sequence[Path],
        shard: ArrayLike,
        offset: ArrayLike,
        size: ArrayLike,
        names: Iterable[str],
    ) -> None:
        self.shards = tuple(shards)
        self.shard = np.asarray(shard, dtype=np.int32)
        self.offset = np.asarray(offset, dtype=np.int64)
        self.size = np.asarray(size, dtype=np.int64)
        self.names = names if isinstance(names, PackedNames) else PackedNames(names)
        self._open: dict[tuple[int, int], BinaryIO] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_open": {}}

    def name(self, i: int) -> str:
        """Shard and member, as in ``train-000000.tar/0001.jpg``."""
        return f"{self.shards[self.shard[i]].name}/{self.names[i]}"

    def read(self, i: int) -> bytes:
        """The bytes of the member."""
        # pread moves no shared file position, so threads and forked workers do not disturb each other
        number = int(self.shard[i])
        handle = self._open.get((os.getpid(), number))
        if handle is None:
            try:
                handle = self.shards[number].open("rb")
            except OSError as error:
                raise DataError(f"{self.shards[number]}: cannot be read ({error.strerror}).") from None
            self._open[(os.getpid(), number)] = handle
        return os.pread(handle.fileno(), int(self.size[i]), int(self.offset[i]))

    def close(self) -> None:
        """Close the shards; reading opens them again."""
        for handle in self._open.values():
            handle.close()
        self._open.clear()

    def __del__(self) -> None:
        self.close()


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


def to_bytes(source: bytes | Image.Image) -> bytes:
    """The content of a picture, for comparing it with another."""
    if isinstance(source, bytes):
        return source
    buffer = io.BytesIO(f"{source.mode}{source.size}".encode())
    buffer.seek(0, io.SEEK_END)
    buffer.write(source.tobytes())
    return buffer.getvalue()
