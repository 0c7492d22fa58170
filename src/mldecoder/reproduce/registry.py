"""All tables by name."""

from collections.abc import Mapping

from mldecoder.errors import ConfigError, did_you_mean
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
    hint = did_you_mean(name, TABLES, f"Known: {', '.join(TABLES)}.")
    raise ConfigError(f"Unknown table {name!r}. {hint}")
