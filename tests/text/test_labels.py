import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from mldecoder.errors import ConfigError, DataError, InputError
from mldecoder.text import encode_labels, read_descriptions

from .files import write_text

LABELS = st.lists(st.text("abc ", min_size=1, max_size=5).filter(str.strip), min_size=1, max_size=6)
TEXTS = st.lists(st.sampled_from(["{}", "a {}", "two {} here", "{}!"]), min_size=1, max_size=4)


def letters(texts: Sequence[str]) -> Tensor:
    """A vector that tells texts apart: how often each of a few letters occurs."""
    return torch.tensor([[text.count(letter) + 0.5 for letter in "abc !tw"] for text in texts])


@given(labels=LABELS, templates=TEXTS, extra=TEXTS, normalise=st.booleans(), data=st.data())
def test_prompts_are_averaged_at_length_one(
    labels: list[str], templates: list[str], extra: list[str], normalise: bool, data: st.DataObject
) -> None:
    descriptions = dict.fromkeys(data.draw(st.sets(st.sampled_from(labels))), extra)
    slow = []
    for label in labels:
        texts = [text.replace("{}", label) for text in descriptions.get(label, templates)]
        vectors = [letters([text])[0] for text in texts]
        if len(vectors) > 1:
            vectors = [vector / vector.norm() for vector in vectors]
        mean = sum(vectors, torch.zeros(7)) / len(vectors)
        slow.append(mean / mean.norm() if normalise else mean)
    found = encode_labels(labels, letters, templates=templates, descriptions=descriptions, normalise=normalise)
    torch.testing.assert_close(found, torch.stack(slow))


def test_vectors_do_not_depend_on_the_order_or_company_of_the_labels() -> None:
    labels = ["dog", "traffic light", "frisbeee", "hot dog"]
    together = encode_labels(labels)
    assert torch.equal(encode_labels(labels[::-1]), together.flip(0))
    assert torch.equal(torch.cat([encode_labels([label]) for label in labels]), together)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(4))


def test_descriptions_replace_the_name_and_braces_bring_it_back() -> None:
    found = encode_labels(["xqzwv", "dog"], descriptions={"xqzwv": ["green fish", "fish"]})
    green_fish, fish = encode_labels(["green fish", "fish"])
    torch.testing.assert_close(found[0], normalize(green_fish + fish, dim=0))
    assert torch.equal(found[1], encode_labels(["dog"])[0])
    assert torch.equal(encode_labels(["dog"], descriptions={"dog": ["{}"]}), encode_labels(["dog"]))


def test_descriptions_come_from_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "descriptions.json"
    path.write_text(json.dumps({"tench": ["a green fish", "{}"], "dog": "a pet"}))
    assert read_descriptions(path) == {"tench": ["a green fish", "{}"], "dog": ["a pet"]}
    for content, message in [("[1]", "object of label"), ('{"a": []}', "list of texts for 'a'"), ("{", "JSON file")]:
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            read_descriptions(path)
    with pytest.raises(DataError, match="JSON file"):
        read_descriptions(tmp_path / "none.json")


def test_replaced_words_are_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    path = write_text(tmp_path / "v.txt", {"bird": [1.0, 0.0], "fire": [0.0, 1.0], "truck": [1.0, 1.0]})
    with caplog.at_level(logging.INFO):
        encode_labels(["brid", "firetruck", "fires"], f"words:{path}")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    expected = "bird (nearest spelling of 'brid'), fire + truck (parts of 'firetruck')."
    assert caplog.records[0].getMessage() == f"2 words are not in words:{path}: {expected}"
    assert "fire (other number of 'fires')" in caplog.records[1].getMessage()


def test_labels_with_equal_vectors_are_named(caplog: pytest.LogCaptureFixture) -> None:
    encode_labels(["dog", "cat", "Dog", "traffic light", "light_traffic"])
    message = caplog.records[-1].getMessage()
    assert "'dog' and 'Dog'" in message
    assert "'traffic light' and 'light_traffic'" in message
    assert "cat" not in message
    caplog.clear()
    encode_labels(["dog", "cat"])
    assert not caplog.records


def test_no_labels_give_no_vectors() -> None:
    assert encode_labels([]).shape == (0, 50)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "dog"}, "must be lists of texts, got one text"),
        ({"labels": ["dog", " "]}, "labels must be texts with a letter or digit, got ' ' at 1"),
        ({"templates": "{}"}, "must be lists of texts"),
        ({"templates": ["a photo"]}, "templates must be texts with {} for the label, got 'a photo'"),
        ({"templates": []}, "templates must be"),
        ({"descriptions": {"cat": ["pet"]}}, "descriptions must be of labels in the list, got only others, as 'cat'"),
        ({"descriptions": {"dog": []}}, "descriptions of 'dog' must be a list of texts"),
        ({"descriptions": {"dog": "pet"}}, "descriptions of 'dog' must be a list of texts, got 'pet'"),
        ({"oov": "zero"}, "oov must be one of 'nearest', 'parts', 'error', got 'zero'"),
        ({"encoder": letters, "cache": True}, "cache needs an encoder with a name of its own"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object], message: str) -> None:
    given_options: dict[str, object] = {"labels": ["dog"]} | options
    with pytest.raises(ConfigError, match=message):
        encode_labels(**given_options)  # type: ignore[arg-type]


def test_an_encoder_that_gives_other_numbers_is_named() -> None:
    with pytest.raises(InputError, match=r"must give finite vectors \(1, 2\), got \(1, 2\) with other numbers"):
        encode_labels(["dog"], lambda texts: torch.full((len(texts), 2), torch.nan))


def test_descriptions_of_other_labels_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        encode_labels(["dog"], descriptions={"dog": ["pet"], "cat": ["pet"]})
    assert "1 descriptions are of no label in the list: cat." in caplog.text
