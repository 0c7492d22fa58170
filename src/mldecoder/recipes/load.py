"""Find, read and override recipes."""

from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from mldecoder.config import parse
from mldecoder.errors import ConfigError, did_you_mean
from mldecoder.recipes.recipe import Recipe

__all__ = ["list_recipes", "load_recipe", "override"]


def list_recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _home().iterdir() if entry.name.endswith(".yaml"))


def load_recipe(name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe by name or path, and set single values of it.

    Args:
        name: One of :func:`list_recipes`, or the path of a YAML file.
        overrides: Such as ``training.epochs=3``.

    Example:
        >>> load_recipe("quick", ["training.epochs=3"]).training.epochs
        3
    """
    data, where = _read(str(name))
    data.setdefault("name", Path(where).stem)
    return override(data, overrides, where)


def override(data: dict[str, Any], overrides: Sequence[str], where: str) -> Recipe:
    """Set single values of a recipe that is still plain data, and validate it."""
    # Another kind of head or loss has other options: those of the recipe go with its kind.
    for override in sorted(overrides, key=lambda text: ".kind=" not in text):
        _set(data, override)
    return parse(Recipe, data, where)


def _home() -> Traversable:
    return files("mldecoder.recipes")


def _read(name: str) -> tuple[dict[str, Any], str]:
    if name in list_recipes():
        text, where = (_home() / f"{name}.yaml").read_text(encoding="utf-8"), name
    elif Path(name).suffix in {".yaml", ".yml"}:
        if not Path(name).is_file():
            raise ConfigError(f"There is no recipe file {name}.")
        text, where = Path(name).read_text(encoding="utf-8"), name
    else:
        hint = did_you_mean(name, list_recipes(), f"Known: {', '.join(list_recipes())}; or pass a .yaml file.")
        raise ConfigError(f"Unknown recipe {name!r}. {hint}")
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must hold sections such as 'training:', got {type(data).__name__}.")
    return data, where


def _set(data: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"--set takes key=value, such as training.epochs=3, got {override!r}.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    for key in keys[:-1]:
        data = data.setdefault(key, {})
        if not isinstance(data, dict):
            raise ConfigError(f"--set {override}: {key!r} holds a value, not a section.")
    if keys[-1] == "kind" and data.get("kind") != value and keys[0] in {"head", "loss"}:
        data.clear()
    data[keys[-1]] = value
