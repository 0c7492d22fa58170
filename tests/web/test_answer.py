"""What the page shows, without the page."""

import base64
import io
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mldecoder.errors import ConfigError, DataError, MLDecoderError
from mldecoder.predict import Prediction, Tag
from mldecoder.web.answer import Answer, Answerer, Map, preview, read_words
from mldecoder.web.bars import bars, chosen, message
from mldecoder.web.limits import as_text, check_pixels, parse_size
from tests.predict.pictures import tiny, zero_shot
from tests.web.pages import png


def told(scores: list[float], threshold: float = 0.5, labels: tuple[str, ...] | None = None) -> Answer:
    names = labels or tuple(f"label {i}" for i in range(len(scores)))
    tags = tuple(Tag(name, score) for name, score in zip(names, scores, strict=True) if score >= threshold > 0)
    best = tuple(sorted(tags, key=lambda one: -one.score))
    return Answer(Prediction("x", best, names, np.array(scores), np.full(len(scores), threshold)))


def bomb(side: int) -> bytes:
    """A small PNG whose header promises a huge picture."""
    body = b"IHDR" + side.to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00"
    header = len(body[4:]).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n" + header + png(0)[33:]


def test_tags_are_those_of_predict() -> None:
    model = tiny()
    content = png(1)
    [expected] = model.predict(content)
    answer = Answerer(model).tags(content)
    assert answer.prediction.tags == expected.tags
    assert answer.to_dict()["scores"] == expected.to_dict(all_scores=True)["scores"]
    assert answer.to_dict()["thresholds"] == dict.fromkeys(model.labels, 0.5)


def test_words_are_those_of_predict() -> None:
    model = zero_shot()
    [expected] = model.predict(png(1), labels=["dog", "red square"])
    answer = Answerer(model).tags(png(1), ("dog", "red square"))
    assert answer.prediction.labels == ("dog", "red square")
    np.testing.assert_array_equal(answer.prediction.scores, expected.scores)


@pytest.mark.parametrize("group_size", [1, 2])
def test_the_map_of_a_word_is_that_of_explain_with_all_words(group_size: int) -> None:
    model = zero_shot(group_size=group_size)
    words = ("dog", "sunset", "red square")
    expected = model.explain(png(2), words).overlay("sunset")
    made = Answerer(model).maps(png(2), ["sunset"], words)["sunset"]
    picture = Image.open(io.BytesIO(base64.b64decode(made.address.partition(",")[2])))
    assert picture.size == expected.size
    assert np.abs(np.asarray(picture, float) - np.asarray(expected, float)).mean() < 3  # JPEG


def test_a_shared_map_says_so() -> None:
    head = {"kind": "ml-decoder", "width": 16, "ff_width": 16, "heads": 2, "num_queries": 4}
    made = Answerer(tiny(head=head)).maps(png(0), ["red circle"])
    assert "9 labels" in made["red circle"].caption


def test_no_map_of_what_was_not_scored() -> None:
    with pytest.raises(ConfigError, match="'dog' was not scored"):
        Answerer(tiny()).maps(png(0), ["dog"])


def test_words_for_a_model_that_has_labels_are_refused() -> None:
    with pytest.raises(MLDecoderError, match="no label 'dog'"):
        Answerer(tiny()).tags(png(0), ("dog",))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"I am a text", "not a picture in a known format"),
        (b"", "zero bytes"),
        (png(0)[:500], "truncated"),
        (bomb(20_000), "more than 100,000,000 pixels"),
        (bomb(10_500), "10,500 x 10,500 pixels"),
        (b"\xff\xd8\xff" + bytes(3_000_000), "2 MB is the limit"),
    ],
)
def test_a_broken_upload_is_one_line_that_says_why(content: bytes, says: str) -> None:
    answerer = Answerer(tiny(), max_bytes=2 * 2**20)
    for ask in (answerer.tags, lambda picture: answerer.maps(picture, ["red circle"])):
        with pytest.raises(DataError) as caught:
            ask(content)
        assert says in str(caught.value)
        assert "picture 0" not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("format", "shown"), [("PNG", True), ("JPEG", True), ("GIF", True), ("WEBP", True), ("BMP", True), ("TIFF", False)]
)
def test_a_file_that_browsers_do_not_show_gets_a_preview(format: str, shown: bool) -> None:
    file = io.BytesIO()
    Image.new("RGB", (2000, 500), "red").save(file, format)
    made = preview(file.getvalue())
    assert (made is None) is shown
    assert made is None or made.size == (1024, 256)


def test_a_picture_at_the_limit_passes() -> None:
    check_pixels(png(0), max_pixels=64 * 64)
    with pytest.raises(DataError, match="64 x 64 pixels"):
        check_pixels(png(0), max_pixels=64 * 64 - 1)


@pytest.mark.parametrize(("text", "size"), [("20MB", 20 * 2**20), ("1.5 kb", 1536), ("7", 7), ("1gb", 2**30)])
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "20XB", "0", "1e3"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Write it as 20MB"):
        parse_size(text)


@given(st.integers(1, 2**40))
def test_a_size_is_never_said_to_be_more_than_it_is(size: int) -> None:
    assert size * 0.9 <= parse_size(as_text(size).replace(" ", "")) + 1 <= size + 1


def test_words_are_read_once_each() -> None:
    assert read_words(" dog, red  car,\ndog,, sunset ") == ("dog", "red car", "sunset")
    assert read_words("") == ()


def test_too_many_and_too_long_words_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 200 words"):
        read_words(",".join(map(str, range(201))))
    with pytest.raises(ConfigError, match="at most 100 letters"):
        read_words("x" * 101)


@given(st.text(min_size=1, max_size=30))
def test_a_label_is_text_and_never_markup(label: str) -> None:
    name = f'<script>alert("{label}")</script><img src=x onerror=alert(1)>'
    html = bars(told([0.9], labels=(name,)), {name: Map("data:,", name)}) + message(name)
    assert "<script" not in html
    assert "<img src=x" not in html
    assert set(re.findall(r"<(\w+)", html)) <= {
        "p", "span", "ul", "li", "label", "input", "bdi", "wbr", "div", "figure", "img", "figcaption",
    }  # fmt: skip


@given(st.lists(st.floats(0, 1), min_size=1, max_size=90))
def test_bars_come_best_first_with_all_tags_and_ticked_ones(scores: list[float]) -> None:
    answer = told(scores)
    shown = chosen(answer, ticked=["label 0"])
    assert [scores[i] for i in shown] == sorted((scores[i] for i in shown), reverse=True)
    there = {answer.prediction.labels[i] for i in shown}
    assert "label 0" in there
    assert {one.label for one in answer.prediction.tags[:60]} <= there
    assert len(shown) >= min(12, len(scores))


def test_a_bar_marks_score_and_threshold() -> None:
    html = bars(told([0.75], threshold=0.25))
    assert "width:75.00%" in html
    assert "left:25.00%" in html
    assert 'class="there"' in html


def test_a_single_label_model_has_no_thresholds_to_mark() -> None:
    html = bars(told([0.75, 0.25], threshold=0.0))
    assert 'class="mark"' not in html


def test_what_a_word_was_read_as_is_shown() -> None:
    answer = replace(told([0.5]), notes=("square (nearest spelling of 'squarre')",))
    assert "Read as square (nearest spelling of &#x27;squarre&#x27;)." in bars(answer)
