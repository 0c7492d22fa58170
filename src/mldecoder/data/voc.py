"""Pascal VOC: ``VOCdevkit/VOC2007`` with ``JPEGImages``, ``Annotations`` and ``ImageSets/Main``.

Layout: the VOC2007 development kit, http://host.robots.ox.ac.uk/pascal/VOC/voc2007/. An object marked *difficult*
makes its label unknown in that picture, unless the picture has another one that is not.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

from mldecoder.data.dataset import Dataset, Files, ImageSet, Targets, describe
from mldecoder.data.layout import Part, choose_val, labelled_only, lines, note_unlabelled
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError

__all__ = ["LABELS", "find", "read"]

# fmt: off
LABELS = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car",
    "cat", "chair", "cow", "diningtable", "dog", "horse", "motorbike",
    "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on


def find(path: Path) -> str | None:
    """What marks the path as VOC, if anything does."""
    roots = _roots(path)
    if not roots:
        return None
    return ", ".join(f"{root.name}/{{JPEGImages,Annotations,ImageSets/Main}}" for root in roots)


def read(path: Path, options: DataOptions) -> Dataset:
    """Read trainval and test, or train and val where the test part has no annotations."""
    root = _choose(path, _roots(path), options)
    sets = {file.stem: file for file in (root / "ImageSets" / "Main").glob("*.txt")}
    chosen: dict[Part, str] = {"train": "trainval", "test": "test"}
    if "trainval" not in sets or "test" not in sets or not _annotated(root, sets["test"]):
        chosen = {"train": "train", "val": "val"}
        if "train" not in sets:
            chosen = {"train": "trainval"}
    parts: dict[Part, ImageSet] = {}
    bare = 0
    used = []
    extra: dict[str, int] = {}
    objects = {}
    for part, name in chosen.items():
        if name not in sets:
            if part == "train":
                raise DataError(f"{root}/ImageSets/Main must hold trainval.txt or train.txt, got {sorted(sets)}.")
            continue
        ids = [line.split()[0] for line in lines(sets[name])]
        objects[part] = ids, _objects(root, ids)
        used.append(f"{name}.txt")
        for present, difficult in objects[part][1]:
            extra.update(dict.fromkeys(present | difficult, 0))
    labels = LABELS if set(extra) <= set(LABELS) else tuple(sorted(extra))
    place = {label: i for i, label in enumerate(labels)}
    for part, (ids, found) in objects.items():
        targets = Targets.from_lists(
            [[place[label] for label in present] for present, _ in found],
            unknown=[[place[label] for label in difficult] for _, difficult in found],
            num_classes=len(labels),
        )
        whole = ImageSet(Files(root, [f"JPEGImages/{name}.jpg" for name in ids]), targets, labels)
        parts[part], without = labelled_only(whole, options)
        bare += without
    val, notes = choose_val(parts, options)
    return Dataset(
        parts["train"],
        val,
        root.name,
        "VOC",
        describe("Pascal VOC", parts["train"], val, f"{root.name}/ImageSets/Main/{' and '.join(used)}"),
        notes + note_unlabelled(bare, options),
    )


def _roots(path: Path) -> list[Path]:
    def is_root(folder: Path) -> bool:
        return (folder / "Annotations").is_dir() and (folder / "ImageSets" / "Main").is_dir()

    if is_root(path):
        return [path]
    return sorted(p for pattern in ("VOC*", "VOCdevkit/VOC*") for p in path.glob(pattern) if is_root(p))


def _choose(path: Path, roots: list[Path], options: DataOptions) -> Path:
    if options.year is not None and roots[0] != path:
        roots = [root for root in roots if root.name == f"VOC{options.year}"]
    if len(roots) != 1:
        names = [root.name for root in _roots(path)]
        year = names[0].removeprefix("VOC")
        raise DataError(f"{path} holds {', '.join(names)}. Choose one with data.options.year={year}.")
    return roots[0]


def _annotated(root: Path, listing: Path) -> bool:
    ids = lines(listing)
    return bool(ids) and (root / "Annotations" / f"{ids[0].split()[0]}.xml").is_file()


def _objects(root: Path, ids: list[str]) -> list[tuple[set[str], set[str]]]:
    """Labels of each picture: those surely there, and those only there as difficult objects."""

    def one(name: str) -> tuple[set[str], set[str]]:
        file = root / "Annotations" / f"{name}.xml"
        try:
            tree = ET.parse(file)
        except FileNotFoundError:
            raise DataError(f"{file} is missing, though ImageSets/Main lists {name}.") from None
        except ET.ParseError as error:
            raise DataError(f"{file} must be XML; it cannot be read ({error}).") from None
        sure: set[str] = set()
        difficult: set[str] = set()
        for thing in tree.iter("object"):
            kind = difficult if (thing.findtext("difficult") or "0").strip() == "1" else sure
            kind.add((thing.findtext("name") or "").strip())
        return sure, difficult - sure

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, ids))
