"""Tar shards in WebDataset layout: ``train-000000.tar`` with ``key.jpg`` and ``key.json``, ``.cls`` or ``.txt``.

Naming of members: https://github.com/webdataset/webdataset, "The WebDataset Format": what comes before the first dot of
the file name is the key of a sample, what comes after says what it is. Members are indexed by their place in the
file, so any picture can be read at any time. Shards that ``mldecoder shard`` packed have their index beside them.
"""

import json
import re
import tarfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from mldecoder.data import indexed_shards
from mldecoder.data.cells import guess_separator, label_order, split_labels
from mldecoder.data.columns import MANY, ONE
from mldecoder.data.dataset import UNKNOWN, Dataset, ImageSet, Targets, TarMembers, Task, describe
from mldecoder.data.layout import EXTENSIONS, Part, choose_val, labelled_only, lines, note_unlabelled, part_of
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError

__all__ = ["expand", "find", "read"]

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_CLASS_FILES = ("classes.txt", "labels.txt", "classnames.txt", "class_names.txt")


def expand(pattern: str) -> list[str]:
    """Write out ``{000000..000012}``.

    Example:
        >>> expand("a-{08..10}.tar")
        ['a-08.tar', 'a-09.tar', 'a-10.tar']
    """
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    first, last = match[1], match[2]
    numbers = [str(i).zfill(len(first)) for i in range(int(first), int(last) + 1)]
    return [one for number in numbers for one in expand(pattern[: match.start()] + number + pattern[match.end() :])]


def find(path: Path) -> str | None:
    """What marks the path as shards, if anything does."""
    if (index := indexed_shards.index_of(path)) is not None:
        return index.name
    shards = _shards(path)
    if not shards:
        return None
    return shards[0].name if len(shards) == 1 else f"{shards[0].name} ... {shards[-1].name} ({len(shards)} shards)"


def read(path: Path, options: DataOptions) -> Dataset:
    """Open packed shards by their index; without one look into all shards, and sort them by their names or folders."""
    if (packed := indexed_shards.index_of(path)) is not None:
        return indexed_shards.read(packed, options)
    shards = _shards(path)
    missing = [shard for shard in shards if not shard.is_file()]
    if missing:
        raise DataError(f"Shard {missing[0]} is missing ({len(missing)} of {len(shards)} are).")
    with ThreadPoolExecutor(4) as pool:
        indexed = list(zip(shards, pool.map(_index, shards), strict=True))
    samples: dict[Part, list[tuple[Path, list[_Sample]]]] = {}
    for shard, its in indexed:
        samples.setdefault(_part(shard), []).append((shard, its))
    if "train" not in samples:
        raise DataError(f"{path} has no shards to train on; its parts are {', '.join(samples)}.")
    root = path if path.is_dir() else shards[0].parent
    lists, kind = _labels([sample for _, its in indexed for sample in its], options, path)
    names = _class_names(root, lists, kind)
    task, place = _task(lists, kind, names, options), {name: i for i, name in enumerate(names)}
    parts: dict[Part, ImageSet] = {}
    bare = 0
    for part, group in samples.items():
        flat = [(number, sample) for number, (_, one) in enumerate(group) for sample in one]
        members = TarMembers(
            [shard for shard, _ in group],
            [number for number, _ in flat],
            [sample.offset for _, sample in flat],
            [sample.size for _, sample in flat],
            [sample.name for _, sample in flat],
        )
        targets = Targets.from_lists(
            [[place[name] for name in sample.labels] for _, sample in flat],
            negatives=[[place[name] for name in sample.negatives if name in place] for _, sample in flat],
            unknown=[[place[name] for name in sample.unknown if name in place] for _, sample in flat],
            num_classes=len(names),
            default=UNKNOWN if any(sample.others_unknown for _, sample in flat) else 0,
        )
        whole = ImageSet(members, targets, names, task)
        parts[part], without = labelled_only(whole, options)
        bare += without
    val, notes = choose_val(parts, options)
    found = f"{find(path)}, labels in .{kind}"
    return Dataset(
        parts["train"],
        val,
        root.name,
        "shards",
        describe("tar shards", parts["train"], val, found),
        notes + note_unlabelled(bare, options),
    )


@dataclass
class _Sample:
    """One picture of a shard and what else has its key."""

    name: str = ""
    offset: int = 0
    size: int = 0
    texts: dict[str, bytes] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    negatives: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    others_unknown: bool = False  # whether what is not named is unknown, and not absent


def _shards(path: Path) -> list[Path]:
    if _BRACES.search(path.name):
        return [path.parent / name for name in expand(path.name)]
    if path.is_dir():
        inside = [
            *path.glob("*.tar"),
            *(t for f in path.iterdir() if f.is_dir() and part_of(f.name) for t in f.glob("*.tar")),
        ]
        return sorted(inside)
    return [path] if path.suffix == ".tar" and path.is_file() else []


def _part(shard: Path) -> Part:
    for word in (*re.split(r"[^a-zA-Z]+", shard.stem), shard.parent.name):
        if part := part_of(word):
            return part
    return "train"


def _index(shard: Path) -> list[_Sample]:
    """The samples of a shard that have a picture."""
    samples: dict[str, _Sample] = {}
    try:
        with tarfile.open(shard, "r:") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                folder, _, file = member.name.rpartition("/")
                stem, _, kind = file.partition(".")
                if not stem or not kind:
                    continue
                sample = samples.setdefault(f"{folder}/{stem}", _Sample())
                last = kind.lower().rpartition(".")[2]
                if f".{last}" in EXTENSIONS:
                    sample.name, sample.offset, sample.size = member.name, member.offset_data, member.size
                elif last in {"json", "cls", "txt"}:
                    content = archive.extractfile(member)
                    sample.texts[last] = content.read() if content is not None else b""
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{shard} must be a whole, uncompressed tar file; it cannot be read ({error}).") from None
    return [sample for sample in samples.values() if sample.name]


def _labels(samples: list[_Sample], options: DataOptions, path: Path) -> tuple[list[list[str]], str]:
    """Fill in the labels of every sample; also which kind of member they come from."""
    if not samples:
        raise DataError(f"{path} holds no pictures.")
    kinds = [kind for kind in ("json", "cls", "txt") if any(kind in sample.texts for sample in samples)]
    key: str | None = None
    if kinds and kinds[0] == "json":
        records = [_record(sample) for sample in samples]
        key = options.label_column or _key(records)
        if key is not None:
            for sample, record in zip(samples, records, strict=True):
                value = record.get(key)
                sample.labels = split_labels(value if isinstance(value, list) else str(value or ""), options.separator)
                sample.negatives, sample.unknown = _list(record, "negatives"), _list(record, "unknown")
                sample.others_unknown = record.get("others") == "unknown"
            return [sample.labels for sample in samples], f"json ({key})" if key in MANY else "json"
        kinds = kinds[1:]
    if not kinds:
        raise DataError(f"The pictures of {path} need labels beside them: key.cls, key.txt, or key.json with 'labels'.")
    texts = [sample.texts.get(kinds[0], b"").decode("utf-8", "replace").strip() for sample in samples]
    if any("\n" in text for text in texts):
        separator: str | None = "\n"
    else:
        separator = options.separator or guess_separator(texts)
    for sample, text in zip(samples, texts, strict=True):
        sample.labels = split_labels(text, separator)
    return [sample.labels for sample in samples], kinds[0]


def _record(sample: _Sample) -> dict[str, object]:
    try:
        record = json.loads(sample.texts.get("json", b"{}"))
    except ValueError as error:
        raise DataError(f"The .json beside {sample.name} cannot be read ({error}).") from None
    if not isinstance(record, dict):
        return {"labels": record}
    return record


def _list(record: dict[str, object], key: str) -> list[str]:
    value = record.get(key)
    return [str(name) for name in value] if isinstance(value, list) else []


def _key(records: list[dict[str, object]]) -> str | None:
    present = {key for record in records for key in record}
    return next((key for key in (*MANY, *ONE, "cls") if key in present), None)


def _class_names(root: Path, lists: Iterable[list[str]], kind: str) -> tuple[str, ...]:
    """Names in order; numbers are looked up in a list of classes where one lies beside the shards."""
    used = label_order(name for names in lists for name in names)
    file = next((root / name for name in _CLASS_FILES if (root / name).is_file()), None)
    if file is None:
        return used
    names = lines(file)
    if kind != "cls" and set(used) <= set(names):
        return tuple(names)  # also where classes are called by numbers
    if used and all(name.isdecimal() for name in used):
        if int(used[-1]) >= len(names):
            raise DataError(f"{file} must name every class; it has {len(names)} lines, and class {used[-1]} occurs.")
        for labels in lists:
            labels[:] = [names[int(name)] for name in labels]
        return tuple(names)
    return tuple(names) if set(used) <= set(names) else used


def _task(lists: list[list[str]], kind: str, names: tuple[str, ...], options: DataOptions) -> Task:
    one = all(len(labels) == 1 for labels in lists)
    if options.task == "single-label" and not one:
        raise DataError("data.task=single-label needs exactly one label a picture.")
    plural = kind.startswith("json (")
    return options.task or ("single-label" if one and not plural and len(names) > 2 else "multi-label")
