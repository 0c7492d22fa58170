import numpy as np
import pytest
import torch
from PIL import Image

import mldecoder as mld
from mldecoder.cli.explain import explain as verb
from mldecoder.data.dataset import Arrays, ImageSet, Targets
from mldecoder.data.detect import open_dataset
from mldecoder.errors import ConfigError, DataError
from mldecoder.explain import faithfulness
from mldecoder.explain.hiding import Drop, hide, most_attended
from mldecoder.heads import GlobalAveragePool
from tests.explain.test_maps import Colours
from tests.predict.pictures import tiny


def red_spots(count: int) -> ImageSet:
    """Dark pictures, each with one red cell."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 30, (count, 64, 64, 3), dtype=np.uint8)
    for image in images:
        row, column = rng.integers(0, 4, 2) * 16
        image[row : row + 16, column : column + 16] = (255, 0, 0)
    return ImageSet(Arrays(images), Targets.from_lists([[0]] * count, num_classes=1), ("red",))


def redness() -> mld.Classifier:
    """A model whose only label is the amount of red: its contributions point at the red cell."""
    model = tiny(labels=("red",), head="gap")
    head = GlobalAveragePool(1, in_features=3)
    with torch.no_grad():
        head.classify.weight.copy_(torch.tensor([[8.0, 0.0, 0.0]]))
        head.classify.bias.fill_(6.0)
    model.head = head.eval()
    model.backbone = Colours()  # type: ignore[assignment]
    return model


def test_a_faithful_map_is_found_faithful() -> None:
    found = faithfulness(redness(), red_spots(40), draws=2, batch_size=16)
    assert found.pictures == found.labels == 40
    assert found.fraction == 3 / 16  # a fifth of sixteen cells
    assert found.attended.mean > 2 * found.random.mean
    assert found.difference.low > 0
    assert found.difference_shifted.low > 0
    assert found.ratio > 2
    assert any("95 % intervals" in line for line in found.lines())


def test_a_map_that_points_elsewhere_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model = redness()
    monkeypatch.setattr("mldecoder.explain.hiding.most_attended", lambda map_, count: most_attended(-map_, count))
    found = faithfulness(model, red_spots(40), draws=2)
    assert found.difference.high < 0


def test_hiding_fills_whole_cells_with_the_mean_colour() -> None:
    image = torch.randint(0, 256, (3, 9, 12), dtype=torch.uint8)
    cells = torch.zeros(2, 3, 4, dtype=torch.bool)
    cells[1, 2, 1] = True
    made = hide(image, cells)
    assert torch.equal(made[0], image)
    mean = image.float().mean(dim=(1, 2)).round().to(torch.uint8)
    assert torch.equal(made[1][:, 6:9, 3:6], mean[:, None, None].expand(3, 3, 3))
    outside = torch.ones(9, 12, dtype=torch.bool)
    outside[6:9, 3:6] = False
    assert torch.equal(made[1][:, outside], image[:, outside])


def test_the_highest_cells_are_taken_even_among_equal_ones() -> None:
    assert most_attended(torch.tensor([[0.1, 0.9], [0.5, 0.9]]), 2).tolist() == [[False, True], [False, True]]
    assert int(most_attended(torch.ones(3, 3), 4).sum()) == 4


def test_the_interval_is_the_usual_one() -> None:
    values = [0.1, 0.4, 0.2, 0.7]
    found = Drop.of(values)
    error = np.std(values, ddof=1) / 2
    assert (found.mean, found.low, found.high) == pytest.approx((0.35, 0.35 - 1.96 * error, 0.35 + 1.96 * error))


def test_a_limit_draws_the_same_pictures_every_time() -> None:
    model, pictures = tiny(), open_dataset("scenes", options={"count": 100}).val
    assert pictures is not None
    a, b = (faithfulness(model, pictures, limit=6, seed=3, draws=1) for _ in range(2))
    assert a == b
    assert a.pictures == 6
    assert 6 <= a.labels <= 30


def test_broken_pictures_are_left_out_and_nothing_is_refused() -> None:
    whole = red_spots(3)

    class SomeBroken(Arrays):
        def read(self, i: int) -> Image.Image:
            if i == 1:
                raise DataError("broken")
            return super().read(i)

    broken = ImageSet(SomeBroken(whole.pictures.images), whole.targets, whole.labels)  # type: ignore[attr-defined]
    assert faithfulness(redness(), broken, draws=1).pictures == 2
    with pytest.raises(DataError, match="at least one picture"):
        faithfulness(redness(), broken.select([1]))
    with pytest.raises(ConfigError, match="fraction must be between 0 and 1, got 1"):
        faithfulness(redness(), whole, fraction=1)


def test_the_verb_prints_the_figures(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("model")
    tiny().save_pretrained(folder)
    verb(str(folder), check="scenes", limit=4)
    told = capsys.readouterr().out
    assert told.startswith("4 pictures")
    assert "Paired difference" in told
