"""Words that a vocabulary does not have: the nearest spelling in it, or known words that they are made of."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Speller", "edit_distance", "split_compound"]

_BINS = 32  # letters are counted in so many bins; letters that share one only let more candidates through
_SHORTEST_PART = 3  # shorter ones ("re", "el") are found in every word
_MOST_PARTS = 3  # more are chance: mem + bra + nop + hone


class Speller:
    """Finds the nearest known spelling among the words with the same first letter, in milliseconds.

    Args:
        words: The vocabulary; of equally near words the first one wins (files put the frequent words first).
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._letters: dict[str, tuple[NDArray[np.int64], NDArray[np.int16]]] = {}

    def nearest(self, word: str) -> str | None:
        """The known word that the fewest edits turn ``word`` into: at most 1 up to four letters, at most 2 beyond.

        Words with digits have no nearest spelling: 1987 is not a slip of the pen for 1989.
        """
        word = word.lower()
        if not word.isalpha() or len(word) < 3:
            return None
        rows, counts = self._letter(word[0])
        # One edit changes the counts of at most two letters by one each: a cheap lower bound for the distance.
        far = np.abs(counts - _count([word])[0]).sum(axis=1)
        for limit in (1, 2) if len(word) > 4 else (1,):
            for row in rows[far <= 2 * limit]:
                if edit_distance(word, candidate := self._words[int(row)], limit) <= limit:
                    return candidate
        return None

    def _letter(self, first: str) -> tuple[NDArray[np.int64], NDArray[np.int16]]:
        """Rows of the words that start so, and the counts of their letters; made when first asked for."""
        if first not in self._letters:
            rows = self._by_first.get(first, np.empty(0, dtype=np.int64))
            self._letters[first] = rows, _count([self._words[row] for row in rows])
        return self._letters[first]

    @cached_property
    def _by_first(self) -> dict[str, NDArray[np.int64]]:
        groups: dict[str, list[int]] = {}
        for row, word in enumerate(self._words):
            if word.isalpha() and word.islower():
                groups.setdefault(word[0], []).append(row)
        return {first: np.asarray(rows, dtype=np.int64) for first, rows in groups.items()}


def edit_distance(a: str, b: str, limit: int) -> int:
    """Edits from ``a`` to ``b`` (insert, delete, replace, swap neighbours); ``limit + 1`` when there are more."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        two_before, before, row = before, row, [i]
        for j, y in enumerate(b, start=1):
            cost = min(row[j - 1] + 1, before[j] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, two_before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit and min(before) > limit:  # a swap reaches back two rows, no further
            return limit + 1
    return min(row[-1], limit + 1)


def split_compound(word: str, find: Callable[[str], int | None]) -> list[str] | None:
    """The two or three known words, of three letters or more, that make up ``word``; ``None`` when there are none.

    Two are better than three; of several splits the one with the commonest words is taken.

    Args:
        word: A word that is not known whole.
        find: The place of a word in the vocabulary (frequent ones first), ``None`` for an unknown one.

    Example:
        >>> vocabulary = ["fire", "truck", "fir", "etruck"]
        >>> split_compound("firetruck", lambda w: vocabulary.index(w) if w in vocabulary else None)
        ['fire', 'truck']
    """
    best: list[tuple[int, int, list[str]] | None] = [(0, 0, [])]  # up to each letter: parts, rarest of them, the parts
    for end in range(1, len(word) + 1):
        options = []
        for start in range(end - _SHORTEST_PART + 1):
            head, part = best[start], word[start:end]
            if head is not None and part != word and (place := find(part)) is not None:
                options.append((head[0] + 1, max(head[1], place), [*head[2], part]))
        best.append(min(options, default=None))
    whole = best[-1]
    return whole[2] if whole is not None and 0 < whole[0] <= _MOST_PARTS else None


def _count(words: Sequence[str]) -> NDArray[np.int16]:
    """How often each letter occurs: words -> (words, bins)."""
    lengths = np.fromiter((len(word) for word in words), dtype=np.int64, count=len(words))
    codes = np.frombuffer("".join(words).encode("utf-32-le"), dtype=np.uint32).astype(np.int64)
    cells = np.repeat(np.arange(len(words)), lengths) * _BINS + codes % _BINS
    return np.bincount(cells, minlength=len(words) * _BINS).reshape(len(words), _BINS).astype(np.int16)
