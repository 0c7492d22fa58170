"""A COCO folder whose validation part is a fifth of the training part, to choose settings on."""

import json
import random
from pathlib import Path

from mldecoder.errors import ConfigError, DataError

__all__ = ["inner_split"]

_SHARE = 5


def inner_split(data: Path, folder: Path) -> Path:
    """Write the split's annotations into ``folder``, with links to the pictures; the validation part is not read."""
    found = sorted(data.glob("annotations/instances_train*.json")) if data.is_dir() else []
    if len(found) != 1:
        raise ConfigError(
            f"--choose needs a COCO folder with one annotations/instances_train*.json, got {len(found)} in {data}."
        )
    source = found[0]
    stem = source.stem.removeprefix("instances_")  # train, or train2014
    try:
        whole = json.loads(source.read_text(encoding="utf-8"))
        images = sorted(whole["images"], key=lambda image: (isinstance(image["id"], str), image["id"]))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{source} must be a COCO file; it cannot be read ({error}).") from None
    random.Random(0).shuffle(images)
    cut = len(images) // _SHARE
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    other = stem.replace("train", "val", 1)
    for name, part in ((other, images[:cut]), (stem, images[cut:])):
        ids = {image["id"] for image in part}
        notes = [note for note in whole["annotations"] if note["image_id"] in ids]
        content = {**whole, "images": part, "annotations": notes}
        (folder / "annotations" / f"instances_{name}.json").write_text(json.dumps(content), encoding="utf-8")
    for entry in data.iterdir():
        if entry.name == "annotations" or not entry.is_dir():
            continue
        # Both parts are pictures of the training part, so the validation part's folder leads there too.
        _link(folder / entry.name, data / stem if entry.name == other and (data / stem).is_dir() else entry)
    return folder


def _link(link: Path, target: Path) -> None:
    if not link.is_symlink() and not link.exists():
        link.symlink_to(target.resolve())
