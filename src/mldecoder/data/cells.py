"""What the cells of a table mean: lists of labels, yes, no, and unknown."""

import ast
import json
import math
from collections.abc import Iterable

from mldecoder.data.targets import UNKNOWN
from mldecoder.errors import DataError

__all__ = ["guess_separator", "is_flag", "label_order", "read_flag", "split_labels"]

_FLAGS = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "y"), 1),
    **dict.fromkeys(("0", "0.0", "false", "no", "n"), 0),
    **dict.fromkeys(("-1", "-1.0", "", "nan", "none", "null", "?", "unknown"), UNKNOWN),
}
_SEPARATORS = ("|", ";", ",")


def text_of(cell: object) -> str:
    """A cell as text; nothing and not-a-number are empty."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))  # whole numbers beside empty cells arrive as floats
    return str(cell).strip()


def is_flag(cell: object) -> bool:
    """Whether a cell says yes, no or unknown."""
    return not isinstance(cell, (list, dict)) and text_of(cell).lower() in _FLAGS


def read_flag(cell: object, where: str) -> int:
    """1, 0 or ``UNKNOWN``; an empty cell is unknown."""
    try:
        return _FLAGS[text_of(cell).lower()]
    except KeyError:
        raise DataError(f"A label column must hold 1, 0, -1 or nothing, got {cell!r} in {where}.") from None


def guess_separator(cells: Iterable[object]) -> str | None:
    """The first of ``| ; ,`` that stands in any cell; never a space, as names of labels have spaces."""
    found: set[str] = set()
    for cell in cells:
        if isinstance(cell, str) and not cell.lstrip().startswith("["):
            found.update(mark for mark in _SEPARATORS if mark in cell)
            if _SEPARATORS[0] in found:
                break
    return next((mark for mark in _SEPARATORS if mark in found), None)


def split_labels(cell: object, separator: str | None) -> list[str]:
    """Labels of one cell: a list, the text of a list in JSON or Python, or names between separators."""
    if isinstance(cell, (list, tuple)):
        return _clean(cell)
    text = text_of(cell)
    if text.startswith("[") and text.endswith("]"):
        for parse in (json.loads, ast.literal_eval):
            try:
                return _clean(parse(text))
            except (ValueError, SyntaxError):
                continue
        return _clean(word.strip().strip("'\"") for word in text[1:-1].split(","))
    return _clean(text.split(separator) if separator else [text])


def _clean(words: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(text for word in words if (text := text_of(word))))


def label_order(names: Iterable[str]) -> tuple[str, ...]:
    """Numbers in their order, then words in theirs."""
    return tuple(sorted(set(names), key=lambda name: (not name.isdecimal(), _number(name), name)))


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else 0
