"""Small files of word vectors, in every layout that is read."""

import gzip
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

Vectors = Mapping[str, Sequence[float]]


def write_text(path: Path, vectors: Vectors, *, header: bool = False, ending: str = "\n") -> Path:
    width = len(next(iter(vectors.values())))
    lines = [f"{len(vectors)} {width}"] if header else []
    lines += [" ".join([word, *map(str, numbers)]) for word, numbers in vectors.items()]
    data = "".join(line + ending for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_npz(path: Path, vectors: Vectors, dtype: type[np.floating] = np.float32) -> Path:
    np.savez(path, names=np.array(list(vectors)), vectors=np.array(list(vectors.values()), dtype=dtype))
    return path


def write_bin(path: Path, vectors: Vectors, *, newline: bool) -> Path:
    width = len(next(iter(vectors.values())))
    data = f"{len(vectors)} {width}\n".encode()
    for word, numbers in vectors.items():
        data += word.encode() + b" " + struct.pack(f"<{width}f", *numbers) + (b"\n" if newline else b"")
    path.write_bytes(data)
    return path
