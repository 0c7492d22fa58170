from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from mldecoder.data.dataset import UNKNOWN, Arrays, Files, ImageSet, Targets
from mldecoder.data.images import BrokenLog, TorchImages, why_broken
from mldecoder.errors import ConfigError, DataError
from tests.data.picture_files import picture


def to_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(image.resize((8, 8))).copy()).permute(2, 0, 1).float() / 255


def broken_set(tmp_path: Path) -> ImageSet:
    """Six pictures; the second is empty, the fourth missing, the fifth a folder."""
    names = [f"{i}.png" for i in range(6)]
    for i in (0, 2, 5):
        picture(tmp_path / names[i], seed=i)
    (tmp_path / names[1]).touch()
    (tmp_path / names[4]).mkdir()
    return ImageSet(Files(tmp_path, names), Targets.from_lists([[i % 2] for i in range(6)], num_classes=2), ("a", "b"))


@pytest.mark.parametrize("workers", [0, 2])
def test_broken_pictures_come_as_zeros_with_unknown_targets(tmp_path: Path, workers: int) -> None:
    data = broken_set(tmp_path)
    images = TorchImages(data, to_tensor, max_broken=3)
    log = images.broken_log()
    for batch in DataLoader(images, batch_size=4, num_workers=workers):
        for j, i in enumerate(batch["index"].tolist()):
            assert batch["broken"][j] == (i in {1, 3, 4})
            if batch["broken"][j]:
                assert not batch["image"][j].any()
                assert batch["target"][j].tolist() == [UNKNOWN, UNKNOWN]
                log.add(data.pictures.name(i), why_broken(data, i) or "")
            else:
                assert torch.equal(batch["image"][j], to_tensor(Image.open(tmp_path / f"{i}.png")))
                assert batch["target"][j].tolist() == data.targets.row(i).tolist()
                assert why_broken(data, i) is None
        assert batch["target"].dtype == torch.int8
    assert log.report("training") == [
        "3 broken pictures of the training part were skipped (limit 3):",
        "  1.png: zero bytes",
        "  3.png: the file is missing",
        "  4.png: a folder, not a picture file",
    ]


def test_with_no_broken_picture_allowed_the_first_is_an_error(tmp_path: Path) -> None:
    log = TorchImages(broken_set(tmp_path), to_tensor, max_broken=0).broken_log()
    with pytest.raises(DataError, match=r"At most 0 .* got 1 \(1\.png: zero bytes\)\..* raise data\.max_broken"):
        log.add("1.png", "zero bytes")


def test_what_another_process_found_is_counted_once() -> None:
    log = BrokenLog(2)
    assert log.add_all({"a": "zero bytes", "b": "truncated"}) == ["a: zero bytes; skipped", "b: truncated; skipped"]
    assert log.add_all({"b": "truncated"}) == []
    with pytest.raises(DataError, match="At most 2"):
        log.add_all({"a": "zero bytes", "c": "missing"})


def test_more_broken_pictures_than_allowed_are_an_error_that_names_them() -> None:
    log = BrokenLog(2)
    assert log.add("a", "zero bytes")
    assert not log.add("a", "zero bytes")  # the next epoch meets it again
    assert log.add("b", "truncated")
    with pytest.raises(DataError, match=r"At most 2 .* got 3 \(a: zero bytes; b: truncated; c: missing\)"):
        log.add("c", "missing")
    assert len(log) == 3


def test_the_limit_may_be_a_fraction() -> None:
    assert BrokenLog(0.01, total=1000).limit == 10
    assert BrokenLog(1).limit == 1
    assert BrokenLog(1.0, total=5).limit == 1
    with pytest.raises(ConfigError, match="needs the total"):
        BrokenLog(0.5)
    with pytest.raises(ConfigError, match="0 or more"):
        BrokenLog(-1)


def test_pictures_in_memory_need_no_files() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    data = ImageSet(Arrays(pixels), Targets.from_classes([0, 1, 0], num_classes=2), ("a", "b"), "single-label")
    item = TorchImages(data, to_tensor)[1]
    assert torch.equal(item["image"], to_tensor(Image.fromarray(pixels[1])))
    assert item["target"].tolist() == [0, 1]
