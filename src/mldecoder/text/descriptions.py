"""Descriptions of labels in a JSON file."""

import json
from pathlib import Path

from mldecoder.errors import DataError

__all__ = ["read_descriptions"]


def read_descriptions(path: Path) -> dict[str, list[str]]:
    """Read ``{"tench": ["a green freshwater fish", "{} in a pond"], ...}`` for ``encode_labels``.

    A label with one description may have it without the list.
    """
    try:
        found = json.loads(path.expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"descriptions must be a JSON file, got {str(path)!r}: {error}.") from error
    if not isinstance(found, dict):
        raise DataError(f"{path.name} must hold an object of label: [texts], got a {type(found).__name__}.")
    lists = {label: [texts] if isinstance(texts, str) else texts for label, texts in found.items()}
    for label, texts in lists.items():
        if (
            not isinstance(texts, list)
            or not texts
            or not all(isinstance(text, str) and text.strip() for text in texts)
        ):
            raise DataError(f"{path.name} must hold a list of texts for {label!r}, got {texts!r}.")
    return lists
