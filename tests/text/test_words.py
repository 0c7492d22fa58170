import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.text.words import chunks, number_forms, pieces, spellings, whole_names

WORD = st.text(st.characters(categories=["Ll"], max_codepoint=0x24F), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("traffic light", ["traffic", "light"]),
        ("traffic_light", ["traffic", "light"]),
        ("  Traffic   Light ", ["Traffic", "Light"]),
        ("crane (bird)", ["crane", "bird"]),
        ("tench, Tinca tinca", ["tench", "Tinca", "tinca"]),
        ("cat/dog", ["cat", "dog"]),
        ("salt & pepper!", ["salt", "pepper"]),
        ("t-shirt", ["t-shirt"]),
        ("women's shoes", ["women's", "shoes"]),
        ("«Äpfel»", ["Äpfel"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("!?", []),
        ("", []),
    ],
)
def test_a_label_is_cut_into_words_without_the_signs_around_them(label: str, expected: list[str]) -> None:
    assert chunks(label) == expected


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ("dog", ["dog"]),
        ("jack-o'-lantern", ["jack", "o", "lantern"]),
        ("TrafficLight", ["Traffic", "Light"]),
        ("trafficLight", ["traffic", "Light"]),
        ("HTMLPage", ["HTML", "Page"]),
        ("TV", ["TV"]),
        ("Boeing747", ["Boeing", "747"]),
        ("747jet", ["747", "jet"]),
        ("3D-TrafficLight", ["3D", "TrafficLight"]),
    ],
)
def test_a_word_falls_into_pieces_at_signs_and_only_then_at_capitals_and_digits(
    chunk: str, expected: list[str]
) -> None:
    assert pieces(chunk) == expected


@given(words=st.lists(WORD, min_size=1, max_size=5), joiner=st.sampled_from([" ", "_", ", ", " / ", "\t", "__"]))
def test_however_words_are_joined_they_come_apart_again(words: list[str], joiner: str) -> None:
    assert chunks(joiner.join(words)) == chunks(" ".join(words))
    assert len(chunks(joiner.join(words))) == len(words)


@given(words=st.lists(st.text("abcxyz", min_size=1, max_size=6), min_size=1, max_size=5))
def test_hyphens_and_camel_case_come_apart_to_the_same_words(words: list[str]) -> None:
    camel = "".join(word.capitalize() for word in words)
    if all(len(word) > 1 for word in words):  # "aB" + "C" cannot be told from "aBC"
        assert [piece.lower() for piece in pieces(camel)] == words
    assert pieces("-".join(words)) == words


@given(label=st.text(max_size=30))
def test_no_letter_or_digit_is_lost_on_the_way(label: str) -> None:
    def plain(text: str) -> list[str]:
        return [letter for letter in text if letter.isalnum()]

    found = chunks(label)
    assert [letter for chunk in found for letter in plain(chunk)] == plain(unicodedata.normalize("NFKC", label))
    for chunk in found:
        assert plain("".join(pieces(chunk))) == plain(chunk)
        assert all(pieces(chunk))


def test_a_whole_label_is_sought_with_each_joiner_in_lower_case_first() -> None:
    for label in ("Traffic light", "Traffic_light", "Traffic-light"):
        names = list(whole_names(label))
        assert names[:4] == ["traffic light", "traffic_light", "traffic-light", label]
        assert {"Traffic light", "TRAFFIC LIGHT"} <= set(names)


def test_a_word_is_sought_in_lower_case_first_and_last_without_accents() -> None:
    assert list(spellings("TV"))[:2] == ["tv", "TV"]
    assert list(spellings("paris")) == ["paris", "Paris", "PARIS"]
    assert "women" in list(spellings("women's"))
    assert "cooks" in list(spellings("cooks'"))
    assert "cafe" in list(spellings("Café"))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("birds", "bird"),
        ("Berries", "berry"),
        ("knives", "knife"),
        ("wolves", "wolf"),
        ("boxes", "box"),
        ("benches", "bench"),
        ("potatoes", "potato"),
        ("horses", "horse"),
        ("firemen", "fireman"),
        ("policewomen", "policewoman"),
        ("people", "person"),
        ("traffic lights", "traffic light"),
        ("bird", "birds"),
        ("berry", "berries"),
        ("box", "boxes"),
        ("glass", "glasses"),
        ("tooth", "teeth"),
    ],
)
def test_the_other_number_of_a_word_is_among_the_candidates(word: str, expected: str) -> None:
    assert expected in list(number_forms(word))


@pytest.mark.parametrize("word", ["bus", "glass", "tennis", "gas"])
def test_words_that_end_in_s_are_not_robbed_of_it(word: str) -> None:
    assert word[:-1] not in list(number_forms(word))
