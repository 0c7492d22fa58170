"""Tables of pictures: CSV, TSV, JSON lines, Parquet, with labels in one column or one column a label."""

from collections.abc import Callable, Sequence
from pathlib import Path

from mldecoder.data.cells import guess_separator, label_order, read_flag, split_labels, text_of
from mldecoder.data.columns import VALIDS, Columns, Table, understand
from mldecoder.data.dataset import Dataset, Files, ImageSet, Pictures, Targets, Task, describe
from mldecoder.data.layout import Part, choose_val, find_folder, labelled_only, note_unlabelled, part_of
from mldecoder.data.options import DataOptions
from mldecoder.data.table_files import SUFFIXES, load, tables_of
from mldecoder.errors import DataError

__all__ = ["find", "locate_files", "read"]

Locate = Callable[[Path, Sequence[str], DataOptions], Pictures]


def find(path: Path) -> str | None:
    """What marks the path as a table, or a folder with one, if anything does."""
    if path.is_file():
        return path.name if path.suffix.lower() in SUFFIXES else None
    files = tables_of(path)
    return ", ".join(file.name for file in files.values()) if files else None


def read(path: Path, options: DataOptions, *, locate: Locate | None = None) -> Dataset:
    """Read one table, or ``train.csv`` beside ``val.csv`` or ``test.csv``."""
    files: dict[Part | None, Path] = {None: path} if path.is_file() else tables_of(path)
    if not path.is_file() and None in files and len(files) > 1:
        files = {None: files[None]}
    locate = locate or locate_files
    rows = [_Rows(file, part, options) for part, file in files.items()]
    labels, columns = rows[0].labels, rows[0].columns
    if len(rows) > 1:
        labels = columns.flags or label_order(name for one in rows for name in one.labels)
    task, why = _task(rows, labels, options)
    parts: dict[Part, ImageSet] = {}
    bare = 0
    for one in rows:
        for part in dict.fromkeys(one.parts):
            chosen = [i for i, its in enumerate(one.parts) if its == part]
            pictures = locate(one.file, [one.paths[i] for i in chosen], options)
            whole = ImageSet(pictures, one.targets(chosen, labels), labels, task)
            parts[part], without = labelled_only(whole, options)
            bare += without
    if "train" not in parts:
        raise DataError(f"{path} has no rows to train on; its parts are {', '.join(parts)}.")
    val, notes = choose_val(parts, options)
    names = " and ".join(one.file.name for one in rows)
    how = f"one column a label ({len(columns.flags)})" if columns.flags else f"column {columns.label!r}"
    found = f"{names}: paths in {columns.path!r}, labels in {how}{rows[0].how}, {why}"
    if columns.ignored:
        notes += (f"Columns not used: {', '.join(columns.ignored[:8])}.",)
    folder = path.parent if path.is_file() else path
    return Dataset(
        parts["train"],
        val,
        path.stem if path.is_file() else folder.name,
        "table",
        describe("table", parts["train"], val, found),
        notes + note_unlabelled(bare, options),
    )


class _Rows:
    """The rows of one table: paths, parts, labels."""

    def __init__(self, file: Path, part: Part | None, options: DataOptions) -> None:
        self.file = file
        table = load(file)
        self.columns: Columns = understand(table, options, file.name)
        self.paths = [text_of(cell) for cell in table[self.columns.path]]
        if not self.paths:
            raise DataError(f"{file} has no rows.")
        if "" in self.paths:
            raise DataError(f"Row {self.paths.index('') + 1} of {file} has no path.")
        self.parts = _parts(table, self.columns, part, file)
        self.how = ""
        if self.columns.flags:
            self.labels = self.columns.flags
            self._flags = {name: table[name] for name in self.columns.flags}
        else:
            cells = table[str(self.columns.label)]
            mark = options.separator or guess_separator(cells)
            self.lists = [split_labels(cell, mark) for cell in cells]
            self.labels = label_order(name for names in self.lists for name in names)
            self.how = f" split at {mark!r}" if mark else ""
            if not self.labels:
                raise DataError(f"Column {self.columns.label!r} of {file} holds no label at all.")

    def targets(self, chosen: list[int], labels: tuple[str, ...]) -> Targets:
        """Targets of the chosen rows."""
        place = {label: i for i, label in enumerate(labels)}
        if not self.columns.flags:
            return Targets.from_lists(
                [[place[name] for name in self.lists[i]] for i in chosen], num_classes=len(labels)
            )
        values = []
        for label in labels:
            cells = self._flags.get(label)
            if cells is None:
                raise DataError(
                    f"{self.file.name} must have the label columns of the other tables; {label!r} is missing."
                )
            values.append([read_flag(cells[i], f"column {label!r} of {self.file.name}") for i in chosen])
        lists = [
            [[j for j, v in enumerate(row) if v == wanted] for row in zip(*values, strict=True)]
            for wanted in (1, 0, -1)
        ]
        return Targets.from_lists(lists[0], negatives=lists[1], unknown=lists[2], num_classes=len(labels))


def _parts(table: Table, columns: Columns, part: Part | None, file: Path) -> list[Part]:
    n = len(table[columns.path])
    if columns.split is None:
        return [part or "train"] * n
    if columns.split.strip().lower() in VALIDS:
        return ["val" if read_flag(cell, columns.split) == 1 else "train" for cell in table[columns.split]]
    parts: list[Part] = []
    for cell in table[columns.split]:
        named = part_of(text_of(cell))
        if named is None:
            raise DataError(
                f"Column {columns.split!r} of {file.name} must say train, val or test, got {text_of(cell)!r}."
            )
        parts.append(named)
    return parts


def _task(rows: list[_Rows], labels: tuple[str, ...], options: DataOptions) -> tuple[Task, str]:
    """One label a picture when the column speaks of one, every picture has one, and there are over two."""
    columns = rows[0].columns
    always = not columns.flags and all(len(names) == 1 for one in rows for names in one.lists)
    if options.task == "single-label" and not always:
        raise DataError(
            f"data.task=single-label needs exactly one label a picture in one column of {rows[0].file.name}."
        )
    if options.task is not None:
        return options.task, "task as asked"
    task: Task = "multi-label"
    if columns.flags:
        why = "each label has its own column"
    elif not always:
        why = "some pictures have none or several"
    elif not columns.one:
        why = "the column's name speaks of several"
    elif len(labels) <= 2:
        why = "there are only two labels or one"
    else:
        task, why = "single-label", "every picture has exactly one of more than two"
    return task, f"{task} as {why} (data.task=... overrides)"


def locate_files(table: Path, names: Sequence[str], options: DataOptions) -> Files:
    """Pictures relative to the table's folder, or to a folder of pictures beside it."""
    base = table.parent
    names = [name.replace("\\", "/") for name in names]
    folders = [base, *(base / name for name in ("images", "imgs", "img", "image", "pictures", "photos", "data"))]
    folders += [base / name for name in ("train", "train_images", "test", "val", "jpg", "JPEGImages")]
    if options.images is not None:
        folders = [Path(options.images), base / options.images]
    error: DataError | None = None
    for suffix in ("", ".jpg", ".jpeg", ".png"):
        try:
            folder = find_folder([name + suffix for name in names], folders, what=table.name)
        except DataError as missing:
            error = error or missing
            continue
        names = [name + suffix for name in names]
        if folder.is_relative_to(base) and folder != base:
            prefix = folder.relative_to(base).as_posix()
            return Files(base, [f"{prefix}/{name}" for name in names])
        return Files(folder, names)
    raise error or DataError(f"{table} has no pictures.")
