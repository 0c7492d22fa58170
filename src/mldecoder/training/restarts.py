"""A run that is started again by the same command goes on.

torchrun starts all processes anew when one of them dies (``--max-restarts``) or when machines come and go, and a
cluster starts a job anew that it had to interrupt. The command is the same each time, so the run has to find itself.
The rule: with ``--output`` naming a folder that holds the same run, data and recipe alike, it goes on from its last
checkpoint if torchrun started it, or if ``--resume-if-there`` was given. Nothing is ever overwritten.
"""

import os

from mldecoder.errors import ConfigError, TrainingError
from mldecoder.recipes import Recipe
from mldecoder.training.folder import RunFolder

__all__ = ["check_output", "goes_on"]


def check_output(named: bool) -> None:
    """Refuse a run that its launcher may start anew, and that could not find itself then."""
    if not named and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0:
        raise ConfigError(
            "With --max-restarts the run must find itself again: pass --output, the same folder at each start."
        )


def goes_on(folder: RunFolder, data: str, recipe: Recipe, *, wished: bool) -> bool:
    """Whether the folder holds this very run, to be gone on with; one process decides for all."""
    if not folder.settings.exists() or not (wished or "TORCHELASTIC_RUN_ID" in os.environ):
        return False
    their_data, theirs = folder.read()
    here = _flat({"--data": data} | recipe.model_dump(mode="json"))
    there = _flat({"--data": their_data} | theirs.model_dump(mode="json"))
    for key in sorted(here.keys() | there.keys()):
        if here.get(key) != there.get(key):
            raise TrainingError(
                f"{folder.path} holds another run: {key} is {there.get(key)} there and {here.get(key)} here. "
                f"Pass another --output, or --resume alone to go on with that one."
            )
    return True


def _flat(section: dict[str, object], prefix: str = "") -> dict[str, object]:
    """Nested sections as ``a.b`` to value."""
    flat: dict[str, object] = {}
    for key, value in section.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
