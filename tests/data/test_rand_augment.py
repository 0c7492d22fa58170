import statistics

import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from mldecoder.data.transforms import AugmentConfig, _RandAugment, training_transform

GREY = Image.new("RGB", (8, 8), "grey")


def drawn(share: float, spread: float, times: int) -> list[float]:
    """Strengths used for so many pictures, as shares of the strongest."""
    augment = _RandAugment(share, spread)
    found = []
    for _ in range(times):
        augment(GREY)
        found.append(augment.magnitude / (augment.num_magnitude_bins - 1))
    return found


def test_the_strength_is_the_share_that_was_asked_for() -> None:
    assert set(drawn(0.7, 0.0, 5)) == {0.7}
    assert set(drawn(1.0, 0.0, 5)) == {1.0}


def test_the_strength_differs_by_its_spread_and_stays_within_bounds() -> None:
    strengths = drawn(0.7, 0.05, 400)
    assert statistics.mean(strengths) == pytest.approx(0.7, abs=0.01)
    assert statistics.stdev(strengths) == pytest.approx(0.05, abs=0.01)
    assert all(0 <= strength <= 1 for strength in drawn(0.95, 0.5, 50))


def test_the_default_is_torchvisions() -> None:
    picture = Image.linear_gradient("L").resize((24, 24)).convert("RGB")
    ours = training_transform(AugmentConfig(resize="squash", flip=False, auto="rand"), (24, 24))
    theirs = v2.Compose([v2.Resize((24, 24)), v2.RandAugment(), v2.PILToTensor()])
    for seed in range(10):
        torch.manual_seed(seed)
        first = ours(picture)
        torch.manual_seed(seed)
        assert torch.equal(first, theirs(picture))
