"""Options that several verbs take as words and read in the same way."""

from pathlib import Path
from typing import Literal

from mldecoder.errors import ConfigError

__all__ = ["read_labels", "read_threshold"]


def read_labels(text: str | None) -> list[str] | None:
    """Labels separated by commas, or a text file with one a line."""
    if text is None:
        return None
    file = Path(text)
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else text.split(",")
    labels = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not labels:
        raise ConfigError(f'--labels must name at least one label, as in "dog, cat", got {text!r}.')
    return labels


def read_threshold(text: str) -> float | Literal["auto"]:
    """``auto`` or a number."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--threshold must be auto or a number between 0 and 1, got {text!r}.") from None
