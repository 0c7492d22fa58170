"""Libraries of text models: imported when needed, loaded without noise, failing in one line."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from mldecoder.errors import ConfigError

__all__ = ["library", "loading"]

_FAILURES = (OSError, RuntimeError, ValueError, KeyError, TypeError)
_NOISY = ("huggingface_hub", "transformers", "sentence_transformers")
_LONGEST = 200  # letters of a library's own message


def library(encoder: str, module: str, package: str) -> Any:  # noqa: ANN401
    """Import a module, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"the text encoder {encoder!r} needs the package {package}, which is not installed. "
            'Install it with: pip install "mldecoder[text]"'
        ) from error


@contextmanager
def loading(encoder: str) -> Iterator[None]:
    """Load a model inside: no bar, no log lines, and one line when it cannot be had."""
    bars: Any = library(encoder, "transformers.utils.logging", "transformers")
    had_bar = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    levels = {name: logging.getLogger(name).level for name in _NOISY}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # open_clip logs through the root logger itself, which would also set up handlers for the whole program.
    handler = logging.NullHandler()
    logging.root.addHandler(handler)
    logging.root.addFilter(_nothing)
    try:
        yield
    except _FAILURES as error:
        reason = str(error).strip().split("\n")[0]
        reason = reason if len(reason) <= _LONGEST else reason[:_LONGEST] + "..."
        raise ConfigError(
            f"the text encoder {encoder!r} must name a model here or one that can be downloaded, got: {reason} "
            "Check the name and the connection, or use 'minilm' or 'glove-50', which need no download."
        ) from error
    finally:
        logging.root.removeFilter(_nothing)
        logging.root.removeHandler(handler)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if had_bar:
            bars.enable_progress_bar()


def _nothing(_: logging.LogRecord) -> bool:
    """A filter of the root logger sees only what is logged there directly, not what comes up from other loggers."""
    return False
