import sys
from pathlib import Path

import pytest

from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.layouts import CAR_NAMES, cars, cars_original


def test_the_development_kit_is_read(tmp_path: Path) -> None:
    data = open_dataset(cars(tmp_path))
    assert data.val is not None
    assert data.labels == tuple(CAR_NAMES)
    assert data.task == "single-label"
    assert data.train.targets.rows([0, 1]).tolist() == [[1, 0], [0, 1]]
    assert data.val.targets.row(0).tolist() == [0, 1]
    assert data.val.pictures.name(0) == "cars_test/00001.jpg"
    assert isinstance(data.val.pictures.read(0), bytes)


def test_the_original_archive_is_read(tmp_path: Path) -> None:
    data = open_dataset(cars_original(tmp_path))
    assert data.val is not None
    assert (len(data.train), len(data.val)) == (2, 1)
    assert data.train.pictures.name(1) == "car_ims/000001.jpg"


def test_without_scipy_there_is_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cars_annos.mat").touch()
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(DataError, match=r"needs SciPy\. Install it, or use a copy of the cars in class folders"):
        open_dataset(tmp_path)


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("scipy.io")
    (tmp_path / "cars_annos.mat").write_bytes(b"not a MATLAB file" * 20)
    with pytest.raises(DataError, match="must be a MATLAB file"):
        open_dataset(tmp_path)
