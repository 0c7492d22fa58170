"""What a user may say about data; every value has a default that needs no thought."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args, get_type_hints

from mldecoder.data.dataset import Task
from mldecoder.errors import ConfigError, did_you_mean

__all__ = ["DataOptions"]


@dataclass(frozen=True)
class DataOptions:
    """How to read a dataset.

    Args:
        task: "multi-label" or "single-label"; None lets the reader decide and say so.
        drop_unlabelled: Leave out pictures without any label (COCO: the paper's 82,081 and 40,137).
        images: Folder of the pictures, where they do not lie beside the labels.
        val_part: Which part to validate on when the data has both "val" and "test".
        path_column: Column of a table that holds the picture's path.
        label_column: Column of a table or Hugging Face dataset that holds the labels.
        split_column: Column of a table that says train, val or test.
        separator: What separates labels within one cell.
        nus_labels: NUS-WIDE: the 81 concepts, the 925 tags, or all 1006 (81 unknown in training: zero-shot).
        machine_labels: Open Images: take labels given by machines too, where no person said anything.
        machine_threshold: Open Images: the least confidence of a machine's label.
        year: COCO or VOC: which year, when the folder holds several.
        count: scenes: how many training pictures (validation: a fifth).
        shard_window: Packed shards: so many are open at a time, and pictures are shuffled among them; 0: among all.
        shard_read: Packed shards at an address: fetch them whole into the cache, or read ranges of bytes.
        shard_cache: Packed shards at an address: how many GB the cache may hold.
    """

    task: Task | None = None
    drop_unlabelled: bool = False
    images: str | None = None
    val_part: Literal["val", "test"] | None = None
    path_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    separator: str | None = None
    nus_labels: Literal["81", "925", "1006"] = "81"
    machine_labels: bool = False
    machine_threshold: float = 0.5
    year: int | None = None
    count: int | None = None
    shard_window: int = 8
    shard_read: Literal["cache", "range"] = "cache"
    shard_cache: float = 20.0

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise ConfigError(f"data.options.{name} must be one of {', '.join(allowed)}, got {value!r}.")
        for name in ("drop_unlabelled", "machine_labels"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"data.options.{name} must be true or false, got {getattr(self, name)!r}.")
        for name in ("year", "count", "shard_window"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise ConfigError(f"data.options.{name} must be a whole number, got {value!r}.")
        if self.count is not None and self.count < 1:
            raise ConfigError(f"data.options.count must be 1 or more, got {self.count}.")
        if self.shard_window is None or self.shard_window < 0:
            raise ConfigError(f"data.options.shard_window must be 0 or more, got {self.shard_window}.")
        if isinstance(self.shard_cache, bool) or not isinstance(self.shard_cache, int | float) or self.shard_cache <= 0:
            raise ConfigError(f"data.options.shard_cache must be a number of GB above 0, got {self.shard_cache!r}.")

    @classmethod
    def of(cls, options: "Mapping[str, object] | DataOptions | None") -> "DataOptions":
        """Read a mapping; an unknown key is an error that names the nearest one."""
        if isinstance(options, cls):
            return options
        names = [field.name for field in dataclasses.fields(cls)]
        values = dict(cast("Mapping[str, object]", options or {}))
        for key in values:
            if key not in names:
                hint = did_you_mean(key, names, f"Known: {', '.join(names)}.")
                raise ConfigError(f"Unknown data option {key!r}. {hint}")
        if isinstance(values.get("nus_labels"), int):
            values["nus_labels"] = str(values["nus_labels"])  # as YAML reads 925
        return cls(**values)  # type: ignore[arg-type]  # the values are checked in __post_init__


_CHOICES = {
    name: get_args(get_args(hint)[0]) if type(None) in get_args(hint) else get_args(hint)
    for name, hint in get_type_hints(DataOptions).items()
    if name in {"task", "val_part", "nus_labels", "shard_read"}
}
