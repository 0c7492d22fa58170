"""The few exceptions of the package.

Every message is one line: the rule, the value that broke it, and the way out.
"""

__all__ = [
    "BackboneError",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "InputError",
    "MLDecoderError",
    "StorageError",
    "TrainingError",
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
