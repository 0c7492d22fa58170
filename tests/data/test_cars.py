import sys
from pathlib import Path

import numpy as np
import pytest

from mldecoder.data.detect import open_dataset
from mldecoder.errors import DataError
from tests.data.picture_files import picture

NAMES = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012"]


def structs(rows: list[dict[str, object]]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """A MATLAB struct array."""
    array = np.empty(len(rows), dtype=[(name, object) for name in rows[0]])
    for i, row in enumerate(rows):
        array[i] = tuple(row.values())
    return array


def box(label: int) -> dict[str, object]:
    return {"bbox_x1": 1, "bbox_y1": 2, "bbox_x2": 9, "bbox_y2": 9, "class": label}


def devkit(root: Path) -> None:
    """Files and fields as torchvision.datasets.StanfordCars expects them."""
    scipy = pytest.importorskip("scipy.io")
    (root / "devkit").mkdir(parents=True)
    scipy.savemat(root / "devkit/cars_meta.mat", {"class_names": np.array(NAMES, dtype=object)})
    train = [{**box(1), "fname": "00001.jpg"}, {**box(2), "fname": "00002.jpg"}]
    scipy.savemat(root / "devkit/cars_train_annos.mat", {"annotations": structs(train)})
    test = [{**box(2), "fname": "00001.jpg"}]
    scipy.savemat(root / "cars_test_annos_withlabels.mat", {"annotations": structs(test)})
    for name in ("cars_train/00001.jpg", "cars_train/00002.jpg", "cars_test/00001.jpg"):
        picture(root / name)


def test_the_development_kit_is_read(tmp_path: Path) -> None:
    devkit(tmp_path)
    data = open_dataset(tmp_path)
    assert data.val is not None
    assert data.labels == tuple(NAMES)
    assert data.task == "single-label"
    assert data.train.targets.rows([0, 1]).tolist() == [[1, 0], [0, 1]]
    assert data.val.targets.row(0).tolist() == [0, 1]
    assert data.val.pictures.name(0) == "cars_test/00001.jpg"
    assert isinstance(data.val.pictures.read(0), bytes)


def test_the_original_archive_is_read(tmp_path: Path) -> None:
    scipy = pytest.importorskip("scipy.io")
    rows = [
        {"relative_im_path": f"car_ims/00000{i}.jpg", **box(label), "test": test}
        for i, (label, test) in enumerate([(1, 0), (2, 0), (1, 1)])
    ]
    content = {"annotations": structs(rows), "class_names": np.array(NAMES, dtype=object)}
    scipy.savemat(tmp_path / "cars_annos.mat", content)
    data = open_dataset(tmp_path)
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
