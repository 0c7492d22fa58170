"""The few exceptions of the package.

Every message is one line: the rule, the value that broke it, and the way out.
"""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

__all__ = [
    "BackboneError",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "InputError",
    "MLDecoderError",
    "StorageError",
    "TrainingError",
    "did_you_mean",
    "unknown_name",
]


class MLDecoderError(Exception):
    """Anything the user can mend; the command line prints it without a traceback."""


class ConfigError(MLDecoderError, ValueError):
    """An option, a recipe or a config file holds a value that cannot work."""


class InputError(MLDecoderError, ValueError):
    """A tensor or picture has a shape or content that the model cannot take."""


class DataError(MLDecoderError):
    """A dataset is missing, broken or of an unknown format."""


class StorageError(MLDecoderError):
    """Storage does not give what an index promises; unlike a broken picture, nothing skips it."""


class CheckpointError(MLDecoderError):
    """A file of weights cannot be read, or does not fit."""


class BackboneError(MLDecoderError):
    """A backbone is unknown, or yields nothing that a head could attend to."""


class TrainingError(MLDecoderError):
    """Training cannot start, or cannot go on."""


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", *, likeness: float = 0.6) -> str:
    """The end of a message about an unknown word: the known one that is nearest, or what to say where none is near.

    ``likeness`` is how near it must be, 0 to 1; where there are few and short words, half may do.

    Example:
        >>> did_you_mean("epoch", ["epochs", "seed"])
        "Did you mean 'epochs'?"
    """
    near = get_close_matches(word, list(known), n=1, cutoff=likeness)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def unknown_name(rule: str, name: str, known: Collection[str]) -> ConfigError:
    """The error about a name that is none of a few known ones; it names the one that was likely meant.

    Example:
        >>> str(unknown_name("a loss must be one of", "asym", ["asymmetric", "bce"]))
        "a loss must be one of asymmetric, bce, got 'asym'. Did you mean 'asymmetric'?"
    """
    hint = did_you_mean(name, known, likeness=0.5)
    return ConfigError(f"{rule} {', '.join(known)}, got {name!r}. {hint}".rstrip())
