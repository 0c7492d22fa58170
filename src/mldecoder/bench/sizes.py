"""Sizes as people write them: ``16GiB``, ``7x7``, ``100,1000``."""

import re

from mldecoder.errors import ConfigError, did_you_mean

__all__ = ["known", "parse_batch", "parse_bytes", "parse_grid", "parse_numbers", "show_bytes", "words"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str) -> int:
    """An amount of memory in bytes.

    Example:
        >>> parse_bytes("16GiB")
        17179869184
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text, flags=re.IGNORECASE)
    if match is None or match[2].lower() not in _UNITS:
        raise ConfigError(f"An amount of memory is a number with a unit, such as 16GiB or 500MB, got {text!r}.")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def show_bytes(count: float) -> str:
    """An amount of memory for people.

    Example:
        >>> show_bytes(17179869184)
        '16.0 GiB'
    """
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def parse_grid(text: str) -> tuple[int, int]:
    """Rows and columns of a feature map.

    Example:
        >>> parse_grid("7x7")
        (7, 7)
    """
    match = re.fullmatch(r"\s*(\d+)\s*[x×]\s*(\d+)\s*", text, flags=re.IGNORECASE)
    if match is None:
        raise ConfigError(f"--tokens takes rows x columns of the feature map, such as 7x7, got {text!r}.")
    return int(match[1]), int(match[2])


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers with commas between them.

    Example:
        >>> parse_numbers("100,1000", "--classes")
        (100, 1000)
    """
    try:
        return tuple(int(word) for word in words(text))
    except ValueError:
        raise ConfigError(f"{option} takes whole numbers with commas, such as 100,1000, got {text!r}.") from None


def parse_batch(text: str) -> int | None:
    """A number of images, or None for ``auto``."""
    if text.strip().lower() == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"--batch takes a number of images or auto, got {text!r}.") from None


def words(text: str) -> tuple[str, ...]:
    """What stands between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def known(name: str, names: tuple[str, ...], what: str) -> None:
    """Refuse a name that is none of ``names``, and say which is nearest."""
    if name not in names:
        hint = did_you_mean(name, names, f"Known: {', '.join(names)}.")
        raise ConfigError(f"Unknown {what} {name!r}. {hint}")
