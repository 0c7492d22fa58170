"""Pictures inside tar files, found by their place: nothing is unpacked."""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mldecoder.data.layout import EXTENSIONS
from mldecoder.errors import DataError

__all__ = ["Member", "members"]


@dataclass(frozen=True)
class Member:
    """Where one picture lies in an uncompressed tar file."""

    shard: Path
    offset: int
    size: int

    def read(self) -> bytes:
        """The bytes of the picture.

        Raises:
            DataError: with the reason, when they are not there.
        """
        try:
            with self.shard.open("rb") as file:
                file.seek(self.offset)
                return file.read(self.size)
        except FileNotFoundError:
            raise DataError("the shard is missing") from None
        except OSError as error:
            raise DataError(f"the shard cannot be read ({error.strerror})") from None


def members(shard: Path) -> Iterator[tuple[str, Member]]:
    """The pictures of a shard in their order, by name; only the headers are read.

    Raises:
        DataError: where it is not a whole tar file; what came before was right.
    """
    try:
        with tarfile.open(shard, "r:") as archive:
            for entry in archive:
                hidden = entry.name.rpartition("/")[2].startswith(".")
                if entry.isfile() and not hidden and Path(entry.name).suffix.lower() in EXTENSIONS:
                    yield entry.name, Member(shard, entry.offset_data, entry.size)
                archive.members = []  # type: ignore[attr-defined]  # tarfile would keep them all
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"not a whole, uncompressed tar file ({error})") from None
    except OSError as error:
        raise DataError(f"the shard cannot be read ({error.strerror})") from None
