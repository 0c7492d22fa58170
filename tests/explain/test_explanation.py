"""Maps brought back to the picture, drawn, and written."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from mldecoder.cli.explain import explain as verb
from mldecoder.config import PreprocessingConfig
from mldecoder.data.transforms import evaluation_transform
from mldecoder.errors import ConfigError, DataError, InputError
from mldecoder.explain import Explainer, Explanation, LabelMap
from mldecoder.explain.draw import TILE, _fit
from mldecoder.explain.explanation import file_name
from mldecoder.explain.geometry import seen_box
from tests.predict.pictures import SMALL, scene, tiny, zero_shot


@given(
    width=st.integers(20, 400),
    height=st.integers(20, 400),
    resize=st.sampled_from(["squash", "crop"]),
    size=st.sampled_from([(64, 64), (48, 96), (64, 40)]),
    crop_pct=st.sampled_from([1.0, 0.9, 0.7]),
)
def test_the_box_is_where_the_preprocessing_looked(
    width: int, height: int, resize: str, size: tuple[int, int], crop_pct: float
) -> None:
    """A picture whose colours are its coordinates says by itself where each pixel of the input came from."""
    preprocessing = PreprocessingConfig.model_validate({"size": size, "resize": resize, "crop_pct": crop_pct})
    left, top, right, bottom = seen_box(width, height, preprocessing)
    ramp = np.zeros((height, width, 3), dtype=np.uint8)
    ramp[..., 0] = 255 * (np.arange(width) + 0.5)[None] / width
    ramp[..., 1] = 255 * (np.arange(height) + 0.5)[:, None] / height
    ramp[..., 2] = 255  # padding is black
    made = evaluation_transform(preprocessing)(Image.fromarray(ramp)).double().numpy()
    rows, columns = size
    x = left + (np.arange(columns) + 0.5) * (right - left) / columns
    y = top + (np.arange(rows) + 0.5) * (bottom - top) / rows
    inside = (x[None] > 4) & (x[None] < width - 4) & (y[:, None] > 4) & (y[:, None] < height - 4)
    inside &= made[2] > 250
    expected_x, expected_y = 255 * x[None] / width + 0 * y[:, None], 255 * y[:, None] / height + 0 * x[None]
    tolerance = 2.5 + 255 * 1.0 / min(width, height)  # rounding of colours, and one pixel
    np.testing.assert_allclose(made[0][inside], expected_x[inside], atol=tolerance)
    np.testing.assert_allclose(made[1][inside], expected_y[inside], atol=tolerance)


def peak(values: NDArray[np.float64]) -> tuple[int, int]:
    row, column = np.unravel_index(int(values.argmax()), values.shape)
    return int(row), int(column)


@pytest.mark.parametrize(("resize", "expected"), [("squash", (75, 50)), ("crop", (75, 75))])
def test_a_map_is_spread_over_the_part_that_was_seen(resize: str, expected: tuple[int, int]) -> None:
    wish = PreprocessingConfig.model_validate({"size": (64, 64), "resize": resize})
    map_ = np.zeros((1, 2, 4))
    map_[0, 1, 0] = 1.0  # lower left
    picture = Image.new("RGB", (200, 100))
    made = Explanation("x", picture, (label_map(map_),), "attention", seen_box(200, 100, wish)).pixels("a")
    assert made.shape == (100, 200)
    row, column = peak(made)
    assert abs(row - expected[0]) <= 26
    assert (0 if resize == "squash" else 50) <= column <= expected[1]
    if resize == "crop":
        assert not made[:, :50].any()
        assert not made[:, 150:].any()


def label_map(heads: NDArray[np.float64], label: str = "a", score: float = 0.9) -> LabelMap:
    return LabelMap(label, score, 0.5, heads, (label,))


def test_the_overlay_is_bright_where_the_map_is_high() -> None:
    map_ = np.zeros((2, 4, 4))
    map_[0, 0, 0] = map_[1, 3, 3] = 1.0
    picture = Image.new("RGB", (256, 256), (200, 40, 40))
    made = Explanation("x", picture, (label_map(map_),), "attention", (0, 0, 256, 256))

    def red(image: Image.Image, x: int, y: int) -> int:
        colour = image.getpixel((x, y))
        assert isinstance(colour, tuple)
        return int(colour[0])

    first, second = made.overlay("a", head=0), made.overlay("a", head=1)
    assert red(first, 20, 20) > 180 > 120 > red(first, 236, 236)
    assert red(second, 236, 236) > 180 > 120 > red(second, 20, 20)
    mean = made.overlay("a")
    assert red(mean, 20, 20) > 180
    assert red(mean, 236, 236) > 180
    with pytest.raises(InputError, match="head must be between 0 and 1, got 2"):
        made.overlay("a", head=2)
    with pytest.raises(InputError, match="no map of 'b' here, only of a"):
        made.overlay("b")


def test_predicted_labels_are_explained_best_first_and_one_at_least() -> None:
    model = tiny()
    (prediction,) = model.predict(scene(0))
    made = model.explain(scene(0))
    assert [one.label for one in made.maps] == [tag.label for tag in prediction.tags]
    assert [one.score for one in made.maps] == pytest.approx([tag.score for tag in prediction.tags])
    nothing = Explainer(model, threshold=1.0)(scene(0))
    assert len(nothing.maps) == 1
    assert nothing.maps[0].notes == ["below its threshold 1.00"]
    assert len(Explainer(model, threshold=0.0, top_k=3)(scene(0)).maps) == 3


def test_labels_asked_for_are_explained_whatever_their_score() -> None:
    model = tiny(head={**SMALL, "num_queries": 9})
    made = model.explain(scene(0), labels=["blue star", "red ring"])
    assert {one.label for one in made.maps} == {"blue star", "red ring"}
    assert all(len(one.shared_by) == 4 and one.label in one.shared_by for one in made.maps)
    assert "map shared by 4 labels" in made["blue star"].notes
    assert made["red ring"].heads.shape == (2, 2, 2)


def test_words_are_explained_by_a_zero_shot_model() -> None:
    made = zero_shot().explain(scene(0), labels=["orange ring", "blue star"])
    assert all(one.shared_by == (one.label,) for one in made.maps)


def test_one_picture_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one picture at a time, got 2"):
        tiny().explain(torch.zeros(2, 3, 8, 8))
    (tmp_path / "a.jpg").write_text("no picture")
    with pytest.raises(DataError, match=r"a.jpg: not a picture"):
        tiny().explain(tmp_path / "a.jpg")


def test_captions_fit_and_the_sheet_holds_every_label() -> None:
    maps = tuple(label_map(np.random.default_rng(i).random((1, 3, 3)), f"{'very ' * i}long", 0.5) for i in range(14))
    made = Explanation("photo.jpg", Image.new("RGB", (300, 40)), maps, "attention", (0, 0, 300, 40))
    sheet = made.contact_sheet()
    assert sheet.width == 6 * (TILE + 10) + 10
    assert sheet.height > 3 * (32 + 20)  # three rows of flat pictures
    assert np.asarray(sheet)[10 + 32 + 4 : 10 + 32 + 24].min() < 100  # there is text under the first row


def test_a_long_label_is_cut_but_its_score_is_not() -> None:
    made = _fit("a label that is far too long for the room under a picture", 16, " 0.93")
    assert made.endswith("… 0.93")
    assert made.startswith("a label that is")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("red circle", "red-circle"), ("../../etc", "etc"), ("猫/犬", "猫-犬"), ("...", "label"), ("a" * 300, "a" * 80)],
)
def test_labels_become_harmless_file_names(text: str, expected: str) -> None:
    assert file_name(text) == expected


def test_the_verb_writes_overlays_heads_and_a_contact_sheet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny(head={**SMALL, "num_queries": 9}).save_pretrained(tmp_path / "model")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        scene(1).save(tmp_path / folder / "photo.png")
    (tmp_path / "a" / "text.jpg").write_text("no picture")
    out = tmp_path / "out"
    verb(
        str(tmp_path / "model"), [tmp_path / "a", tmp_path / "b"], out=out, labels="red ring, blue star", per_head=True
    )
    told = capsys.readouterr()
    assert "shared by 4 labels" in told.out
    assert "text.jpg: not a picture" in told.err
    names = {path.name for path in out.iterdir()}
    assert "contact-sheet.png" in names
    assert {"photo--red-ring.png", "photo--red-ring-2.png", "photo--blue-star--heads.png"} <= names
    assert len(names) == 9
    with pytest.raises(ConfigError, match="either pictures to explain, or --check"):
        verb(str(tmp_path / "model"))
