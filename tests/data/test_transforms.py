import numpy as np
import pytest
import torch
from PIL import Image

from mldecoder.config import PreprocessingConfig
from mldecoder.data.transforms import AugmentConfig, cutout, evaluation_transform, normalise, training_transform
from mldecoder.errors import ConfigError


@pytest.fixture
def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8))


@pytest.mark.parametrize("auto", ["none", "rand", "auto", "trivial"])
@pytest.mark.parametrize("resize", ["crop", "squash"])
def test_training_pictures_have_the_wished_size(picture: Image.Image, resize: str, auto: str) -> None:
    augment = AugmentConfig.model_validate({"resize": resize, "auto": auto, "cutout": 0.5, "colour": 0.2})
    out = training_transform(augment, (24, 32))(picture)
    assert out.shape == (3, 24, 32)
    assert out.dtype == torch.uint8


def test_chance_comes_from_torchs_generator(picture: Image.Image) -> None:
    transform = training_transform(AugmentConfig(auto="rand", cutout=0.3), (24, 24))
    torch.manual_seed(1)
    first = transform(picture)
    torch.manual_seed(1)
    assert torch.equal(first, transform(picture))
    assert not torch.equal(first, transform(picture))


def test_squashing_keeps_the_whole_picture_and_cropping_its_middle() -> None:
    half = np.zeros((40, 80, 3), dtype=np.uint8)
    half[:, :16] = 255
    image = Image.fromarray(half)
    squashed = evaluation_transform(PreprocessingConfig(size=(20, 20), resize="squash"))(image)
    cropped = evaluation_transform(PreprocessingConfig(size=(20, 20), resize="crop"))(image)
    assert squashed[0, 10, :3].min() == 255
    assert cropped.max() == 0


def test_normalising_follows_the_formula() -> None:
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    config = PreprocessingConfig(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    out = normalise(images, config)
    for c in range(3):
        expected = (images[:, c].float() / 255 - config.mean[c]) / config.std[c]
        torch.testing.assert_close(out[:, c], expected)
    torch.testing.assert_close(normalise(images, PreprocessingConfig()), images.float() / 255)


def test_cutout_paints_one_box_of_at_most_its_share() -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        out = cutout(torch.zeros(3, 20, 20, dtype=torch.int16) - 1, 0.5)
        painted = (out >= 0).any(0)
        assert 25 <= painted.sum() <= 100
        rows, columns = painted.any(1).sum(), painted.any(0).sum()
        assert rows * columns == painted.sum()


@pytest.mark.parametrize("change", [{"min_scale": 0.0}, {"cutout": 1.5}])
def test_shares_outside_their_range_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        training_transform(AugmentConfig(**change), (8, 8))  # type: ignore[arg-type]


def test_a_very_thin_picture_does_not_fill_the_memory() -> None:
    thin = Image.fromarray(np.zeros((2, 60_000, 3), dtype=np.uint8))
    out = evaluation_transform(PreprocessingConfig(size=(64, 64), resize="crop"))(thin)
    assert out.shape == (3, 64, 64)
