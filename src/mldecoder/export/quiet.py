"""Keep what exporters say to their own developers from users."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]

_KNOWN = (
    "Skipping constant folding for op",  # onnxscript; we fold by ourselves
    "Please consider to run pre-processing before quantization",  # onnxruntime; ours is done
)


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out the known sentences; anything else is still said."""

    def wanted(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(_KNOWN)

    loggers = [logging.getLogger(), logging.getLogger("onnxscript.optimizer._constant_folding")]
    for logger in loggers:
        logger.addFilter(wanted)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(wanted)
