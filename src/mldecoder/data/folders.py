"""A folder of class folders, as ImageNet and many others: ``train/<class>/*.jpg`` and ``val/``, or no parts at all."""

from pathlib import Path

from mldecoder.data.dataset import Dataset, Files, ImageSet, Targets, Task, describe
from mldecoder.data.layout import Part, choose_val, has_pictures, part_of, walk
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError

__all__ = ["find", "read"]

_IMAGENET = "ILSVRC/Data/CLS-LOC"  # where the archive of the ImageNet challenge keeps train/ and val/


def find(path: Path) -> str | None:
    """What marks the path as class folders, if anything does."""
    if not path.is_dir():
        return None
    root = _root(path)
    parts = _parts(root)
    if "train" in parts:
        classes = _classes(parts["train"])
        return f"{_below(parts['train'], path)}/ with {len(classes):,} class folders" if len(classes) > 1 else None
    classes = _classes(root)
    return f"{len(classes):,} class folders" if len(classes) > 1 else None


def read(path: Path, options: DataOptions) -> Dataset:
    """Read each part; the labels are the names of the class folders."""
    root = _root(path)
    folders = _parts(root)
    if "train" not in folders:
        folders = {"train": root}
    notes: tuple[str, ...] = ()
    labels = sorted({name for folder in folders.values() for name in _classes(folder)})
    place = {label: i for i, label in enumerate(labels)}
    task: Task = options.task or "single-label"
    parts: dict[Part, ImageSet] = {}
    for part, folder in folders.items():
        names, classes = [], []
        for label in _classes(folder):
            inside = walk(folder / label)
            names += [f"{_below(folder / label, root)}/{name}" for name in inside]
            classes += [place[label]] * len(inside)
        if not names:
            notes += (f"{folder.name}/ has no class folders with pictures and is left out.",)
            continue
        targets = Targets.from_classes(classes, num_classes=len(labels))
        parts[part] = ImageSet(Files(root, names), targets, tuple(labels), task)
    if "train" not in parts:
        raise DataError(f"{folders['train']} has no pictures in its class folders.")
    val, more = choose_val(parts, options)
    return Dataset(
        parts["train"],
        val,
        path.name,
        "class folders",
        describe("class folders", parts["train"], val, str(find(path))),
        notes + more,
    )


def _root(path: Path) -> Path:
    return path / _IMAGENET if (path / _IMAGENET).is_dir() else path


def _below(folder: Path, root: Path) -> str:
    return folder.relative_to(root).as_posix()


def _parts(root: Path) -> dict[Part, Path]:
    found: dict[Part, Path] = {}
    for folder in sorted(p for p in root.iterdir() if p.is_dir()):
        part = part_of(folder.name)
        if part is not None:
            found.setdefault(part, folder)
    return found


def _classes(folder: Path) -> list[str]:
    """Names of the folders that hold pictures."""
    return sorted(
        p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "__")) and has_pictures(p)
    )
