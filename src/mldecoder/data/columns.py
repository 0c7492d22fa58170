"""Which column of a table is what: path, split, labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mldecoder.data.cells import is_flag, text_of
from mldecoder.data.layout import part_of
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError, did_you_mean

__all__ = ["Columns", "Table", "understand"]

Table = Mapping[str, Sequence[object]]

PATHS = [
    "path",
    "file",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "image_path",
    "img_path",
    "imagepath",
    "image",
    "img",
    "image_name",
    "image_id",
    "imageid",
    "picture",
    "photo",
    "pic",
    "relative_im_path",
    "fname",
    "name",
    "id",
    "uri",
]
SPLITS = ["split", "split_name", "set", "subset", "partition", "part", "usage", "fold_name", "dataset", "phase"]
VALIDS = ["is_valid", "is_val", "is_validation", "is_test", "valid"]
ONE = [
    "label",
    "class",
    "breed",
    "species",
    "category",
    "target",
    "class_name",
    "label_name",
    "category_name",
    "classname",
    "concept",
]
MANY = [
    "labels",
    "tags",
    "classes",
    "categories",
    "targets",
    "tag",
    "keywords",
    "concepts",
    "class_names",
    "label_names",
    "attributes",
    "genres",
]


@dataclass(frozen=True)
class Columns:
    """Where a table keeps what; either one label column or one column a label."""

    path: str
    split: str | None
    label: str | None  # holds the labels of a picture
    flags: tuple[str, ...]  # each of them is a label
    one: bool  # the label column's name speaks of one label
    ignored: tuple[str, ...]


def understand(table: Table, options: DataOptions, where: str) -> Columns:
    """Find the columns by their names, then by their content.

    Raises:
        DataError: that names the columns there are and the option that says which is meant.
    """
    names = list(table)
    path = _named(names, options.path_column, PATHS, "path", where)
    if path is None:
        raise DataError(
            f"{where} needs a column of picture paths (such as path, file or image); it has {_few(names)}. "
            "Name it with data.options.path_column=NAME."
        )
    rest = [name for name in names if name != path]
    split = _split(table, rest, options, where)
    rest = [name for name in rest if name != split]
    label = _named(rest, options.label_column, (), "label", where)
    if label is None:
        flags = tuple(name for name in rest if _all_flags(table[name]))
        named = _first(rest, (*MANY, *ONE))
        if flags and (named is None or named in flags):
            return Columns(path, split, None, flags, False, tuple(n for n in rest if n not in flags))
        label = named if named is not None else (rest[0] if len(rest) == 1 else None)
    if label is None:
        raise DataError(
            f"{where} needs a column of labels (such as label or tags) or one column of 1, 0 or -1 a label; "
            f"it has {_few(names)}. Name it with data.options.label_column=NAME."
        )
    one = label.strip().lower() not in MANY
    return Columns(path, split, label, (), one, tuple(name for name in rest if name != label))


def _named(names: list[str], asked: str | None, known: Sequence[str], what: str, where: str) -> str | None:
    if asked is not None:
        if asked not in names:
            hint = did_you_mean(asked, names, f"It has {_few(names)}.")
            raise DataError(f"data.{what}_column must be a column of {where}, got {asked!r}. {hint}")
        return asked
    return _first(names, known)


def _first(names: list[str], known: Sequence[str]) -> str | None:
    """The column whose name comes first among the known ones."""
    lower = {name.strip().lower().replace(" ", "_"): name for name in reversed(names)}
    return next((lower[word] for word in known if word in lower), None)


def _split(table: Table, names: list[str], options: DataOptions, where: str) -> str | None:
    asked = _named(names, options.split_column, (), "split", where)
    if asked is not None:
        return asked
    for name in names:
        word = name.strip().lower()
        if word in SPLITS and all(part_of(str(cell)) for cell in table[name]):
            return name
        if word in VALIDS and all(is_flag(cell) for cell in table[name]):
            return name
    return None


def _all_flags(cells: Sequence[object]) -> bool:
    return all(is_flag(cell) for cell in cells) and any(text_of(cell) for cell in cells)


def _few(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
