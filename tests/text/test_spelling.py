from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.text.spelling import Speller, edit_distance, split_compound

SHORT = st.text("abc", max_size=7)


def slow_distance(a: str, b: str) -> int:
    """The definition, by recursion."""

    @cache
    def d(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        best = min(d(i - 1, j) + 1, d(i, j - 1) + 1, d(i - 1, j - 1) + (a[i - 1] != b[j - 1]))
        if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
            best = min(best, d(i - 2, j - 2) + 1)
        return best

    return d(len(a), len(b))


@given(a=SHORT, b=SHORT, limit=st.integers(0, 8))
def test_the_distance_is_that_of_the_definition_up_to_its_limit(a: str, b: str, limit: int) -> None:
    assert edit_distance(a, b, limit) == min(slow_distance(a, b), limit + 1)


@given(
    word=st.text("abcd", min_size=3, max_size=8), words=st.lists(st.text("abcd", min_size=1, max_size=8), max_size=20)
)
def test_the_nearest_spelling_is_the_first_of_the_nearest_words_with_the_same_first_letter(
    word: str, words: list[str]
) -> None:
    limit = 2 if len(word) > 4 else 1
    near = [(slow_distance(word, other), i) for i, other in enumerate(words) if other[0] == word[0]]
    best = min((pair for pair in near if pair[0] <= limit), default=None)
    assert Speller(words).nearest(word) == (words[best[1]] if best else None)


def test_numbers_and_very_short_words_have_no_nearest_spelling() -> None:
    speller = Speller(["1989", "ab", "3d"])
    assert [speller.nearest(word) for word in ("1987", "ac", "3e")] == [None, None, None]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("firetruck", ["fire", "truck"]),
        ("firetrucks", ["fire", "trucks"]),
        ("truckfirefire", ["truck", "fire", "fire"]),
        ("firefirefirefire", None),
        ("firebus", ["fire", "bus"]),
        ("fire", None),
        ("firexx", None),
        ("", None),
    ],
)
def test_a_compound_is_split_into_the_fewest_and_commonest_words(word: str, expected: list[str] | None) -> None:
    rows = {word: row for row, word in enumerate(["fire", "truck", "trucks", "bus", "fir", "etruck", "xx"])}
    assert split_compound(word, rows.get) == expected


@given(word=st.text("ab", max_size=12), words=st.lists(st.text("ab", min_size=1, max_size=5), unique=True, max_size=8))
def test_a_split_is_the_best_of_all_splits(word: str, words: list[str]) -> None:
    rows = {other: row for row, other in enumerate(words)}

    def splits(rest: str) -> list[list[str]]:
        found: list[list[str]] = [[]] if not rest else []
        return found + [
            [w, *tail] for w in words if len(w) >= 3 and rest.startswith(w) for tail in splits(rest[len(w) :])
        ]

    costs = [(len(s), max(rows[w] for w in s), s) for s in splits(word) if 2 <= len(s) <= 3]
    ours = split_compound(word, rows.get)
    if word in rows:
        assert ours is None or len(ours) > 1
    elif not costs:
        assert ours is None
    else:
        assert ours is not None
        assert (len(ours), max(rows[w] for w in ours)) == min(costs)[:2]
        assert "".join(ours) == word
