"""Label names to words: what a label may be called in a file of word vectors, and how it falls into pieces.

Nothing here knows a vocabulary: each function yields candidates, best first, and ``lookup`` takes the first one known.
"""

import re
import unicodedata
from collections.abc import Iterator

__all__ = ["chunks", "number_forms", "pieces", "spellings", "whole_names", "without_accents"]

# A lower-case letter or digit before a capital, a capital before a capitalised word ("HTMLPage"), letter | digit.
_BOUNDARY = re.compile(
    r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][^\W\d_A-Z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])"
)
_JOINT = re.compile(r"[\s_-]+")
_SPACE = re.compile(r"[\s_/,;:|]+")
_POSSESSIVE = re.compile(r"['’]s$|(?<=s)['’]$", re.IGNORECASE)

_IRREGULAR = {
    "children": "child",
    "dice": "die",
    "feet": "foot",
    "geese": "goose",
    "men": "man",
    "mice": "mouse",
    "oxen": "ox",
    "people": "person",
    "teeth": "tooth",
    "women": "woman",
}
_IRREGULAR_PLURALS = {one: many for many, one in _IRREGULAR.items()}


def whole_names(label: str) -> Iterator[str]:
    """What the whole label may be called in a file: "traffic light", "traffic_light", "traffic-light", each spelling.

    Example:
        >>> from itertools import islice
        >>> list(islice(whole_names("Traffic_light"), 4))
        ['traffic light', 'traffic_light', 'traffic-light', 'Traffic_light']
    """
    label = _clean(label)
    words = [word for word in _JOINT.split(label) if word]
    names = [joiner.join(words) for joiner in " _-"] if len(words) > 1 else [label]
    yield from dict.fromkeys(name.lower() for name in names)
    yield label
    for name in names:
        yield from spellings(name)


def chunks(label: str) -> list[str]:
    """The label cut at spaces, underscores, slashes and commas; a cut without a letter or digit is dropped.

    Example:
        >>> chunks("Crane_(bird), T-shirt & 3D-glasses")
        ['Crane', 'bird', 'T-shirt', '3D-glasses']
    """
    return [bare for chunk in _SPACE.split(_clean(label)) if (bare := _without_signs_around(chunk))]


def pieces(chunk: str) -> list[str]:
    """The chunk cut at hyphens and other signs; where there is none, at CamelCase and between letters and digits.

    Example:
        >>> pieces("jack-o-lantern"), pieces("TrafficLight"), pieces("Boeing747"), pieces("dog")
        (['jack', 'o', 'lantern'], ['Traffic', 'Light'], ['Boeing', '747'], ['dog'])
    """
    parts = "".join(" " if _is_sign(letter) else letter for letter in chunk).split()
    return parts if len(parts) > 1 else [piece for part in parts for piece in _BOUNDARY.split(part)]


def spellings(word: str) -> Iterator[str]:
    """The word in lower case, as written, Capitalised, in CAPITALS, without "'s", without accents.

    Lower case goes first: labels are things, and "Apple" in a list of labels is the fruit.

    Example:
        >>> list(spellings("Café"))
        ['café', 'Café', 'CAFÉ', 'cafe', 'Cafe', 'CAFE']
    """
    yield word.lower()  # most often enough; the rest is worked out only when asked for
    own = _POSSESSIVE.sub("", word)
    forms = dict.fromkeys([word, own, without_accents(own)])
    cases = dict.fromkeys(case for form in forms for case in (form.lower(), form, form.capitalize(), form.upper()))
    yield from list(cases)[1:]


def number_forms(word: str) -> Iterator[str]:
    """What the word may be in the other number, the singular first: "birds" -> "bird", "bird" -> "birds".

    Candidates, not grammar: only those that the vocabulary knows are used.

    Example:
        >>> list(number_forms("knives")), list(number_forms("Berry")), list(number_forms("glass"))
        (['knif', 'knife', 'knive'], ['berrys', 'berries'], ['glasses'])
    """
    word = word.lower()
    one = _singulars(word)
    yield from dict.fromkeys(form for form in (one or _plurals(word)) if len(form) > 1)


def _singulars(word: str) -> list[str]:
    for many, one in _IRREGULAR.items():
        if word == many or (len(many) > 2 and word.endswith(many) and many in {"men", "women", "children"}):
            return [word.removesuffix(many) + one]
    if not word.endswith("s") or word.endswith(("ss", "us", "is")) or len(word) < 4:
        return []
    forms = []
    if word.endswith("ies"):
        forms.append(word[:-3] + "y")
    if word.endswith("ves"):
        forms += [word[:-3] + "f", word[:-3] + "fe"]
    if word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        forms.append(word[:-2])
    return [*forms, word[:-1]]


def _plurals(word: str) -> list[str]:
    if word in _IRREGULAR_PLURALS:
        return [_IRREGULAR_PLURALS[word]]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return [word + "es"]
    forms = [word + "s"]
    if word.endswith("y"):
        forms.append(word[:-1] + "ies")
    return forms


def _without_signs_around(chunk: str) -> str:
    start, end = 0, len(chunk)
    while start < end and _is_sign(chunk[start]):
        start += 1
    while start < end and _is_sign(chunk[end - 1]):
        end -= 1
    return chunk[start:end]


def _is_sign(letter: str) -> bool:
    """Punctuation, symbols, blanks and controls; marks are none, Hindi writes its vowels with them."""
    return unicodedata.category(letter)[0] in "PSZC"


def _clean(text: str) -> str:
    """One form of each letter (NFKC), no blanks around."""
    return unicodedata.normalize("NFKC", text).strip()


def without_accents(word: str) -> str:
    """The bare letters: "café" -> "cafe"."""
    if word.isascii():
        return word
    letters = unicodedata.normalize("NFKD", word)
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
