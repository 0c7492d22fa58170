"""Pictures to begin with: drawn scenes that need no download."""

from pathlib import Path

from PIL import Image

from mldecoder.data import scenes

__all__ = ["write_examples"]

_NUMBERS = (3, 12, 21, 30, 46)  # of the held-out part, so that no demo has learnt them


def write_examples(folder: Path) -> list[Path]:
    """Draw some scenes into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in _NUMBERS:
        path = folder / f"scene-{number}.png"
        Image.fromarray(scenes.draw(number, "val")[0]).save(path)
        paths.append(path)
    return paths
