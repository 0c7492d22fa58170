"""All tables by name."""

from collections.abc import Mapping
from difflib import get_close_matches

from mldecoder.errors import ConfigError
from mldecoder.reproduce import many_classes, multi_label, single_label, throughput, zero_shot
from mldecoder.reproduce.head_options import read_options
from mldecoder.reproduce.table import Table

__all__ = ["TABLES", "find_table"]

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        *multi_label.TABLES,
        *many_classes.TABLES,
        *zero_shot.TABLES,
        *single_label.TABLES,
        throughput.TABLE,
        read_options(),
    )
}


def find_table(name: str) -> Table:
    """A table by its name."""
    if name in TABLES:
        return TABLES[name]
    near = get_close_matches(name, TABLES, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(TABLES)}."
    raise ConfigError(f"Unknown table {name!r}. {hint}")
