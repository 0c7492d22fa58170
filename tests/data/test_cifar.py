import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.layouts import CIFAR_FINE, CIFAR_NAMES, CIFAR_PIXELS, cifar_binary, cifar_pickled
from tests.data.picture_files import write


@pytest.mark.parametrize("make", [cifar_binary, cifar_pickled])
@pytest.mark.parametrize("inside", [True, False])
def test_cifar_100_is_read_in_both_versions(tmp_path: Path, make: Callable[[Path], Path], inside: bool) -> None:
    folder = make(tmp_path)
    data = open_dataset(folder if inside else tmp_path)
    assert data.val is not None
    assert data.labels == tuple(CIFAR_NAMES)
    assert data.task == "single-label"
    assert (len(data.train), len(data.val)) == (3, 2)
    for part, first in ((data.train, 0), (data.val, 3)):
        for i in range(len(part)):
            assert np.array_equal(np.asarray(part.pictures.read(i)), CIFAR_PIXELS[first + i].transpose(1, 2, 0))
            assert part.targets.positives(i).tolist() == [CIFAR_FINE[first + i]]
    assert data.train.pictures.name(1) == "train/1"


def test_cifar_10_binary_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    write(folder / "batches.meta.txt", "\n".join(CIFAR_NAMES) + "\n\n")
    for name, i in (("data_batch_1", 0), ("data_batch_2", 1), ("test_batch", 2)):
        (folder / f"{name}.bin").write_bytes(bytes([CIFAR_FINE[i]]) + CIFAR_PIXELS[i].tobytes())
    data = open_dataset(tmp_path)
    assert len(data.train) == 2
    assert data.train.targets.positives(0).tolist() == [2]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (eval, ("1 + 1",))


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    folder = cifar_pickled(tmp_path)
    (folder / "train").write_bytes(pickle.dumps({"data": Evil()}, protocol=2))
    with pytest.raises(DataError, match=r"asks for .*eval\. Do not trust it"):
        open_dataset(tmp_path)


def test_a_cut_file_is_an_error(tmp_path: Path) -> None:
    folder = cifar_binary(tmp_path)
    (folder / "train.bin").write_bytes((folder / "train.bin").read_bytes()[:-1])
    with pytest.raises(DataError, match="records of 3074 bytes"):
        open_dataset(tmp_path)
    other = cifar_pickled(tmp_path / "p")
    (other / "train").write_bytes((other / "train").read_bytes()[:50])
    with pytest.raises(DataError, match="Download it again"):
        open_dataset(other)
