"""The tables of ``docs/scale.md``, of the rows that ``tools.scale_cost`` computes; what was measured is bold."""

import re
from collections.abc import Mapping
from pathlib import Path

from tools.scale_cost import DEVICES, FEW, MANY, PICTURES, Row

__all__ = ["PAGE", "fill", "page_tables"]

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"


def page_tables(made: list[Row]) -> dict[str, str]:
    """The tables of the page, by the name of their place."""
    return {
        "training": _pivot(made, "training, an epoch"),
        "tagging": _pivot(made, "tagging, as decoding", "tagging, as training"),
        "memory": _memory_table(made),
        "storage": _storage_table(made),
        "inputs": _lines(
            ("what", "figure", "from"),
            [
                (str(r["what"]), f"{_shown(r)} {r['unit']}", str(r["from"]))
                for r in made
                if not r["devices"] and not r["pictures"]
            ],
        ),
    }


def _shown(row: Row) -> str:
    figure = row["figure"]
    text = f"{figure:,}" if isinstance(figure, int) else f"{figure:g}"
    if row["unit"] == "h":
        text = _time(float(str(figure)))
    return f"**{text}**" if row["standing"] == "measured" else text


def _time(hours: float) -> str:
    """Hours in the unit that one would say."""
    for least, unit, each in ((48, "days", 1 / 24), (1, "h", 1), (1 / 60, "min", 60)):
        if hours >= least:
            return f"{hours * each:.2g} {unit}"
    return f"{hours * 3600:.2g} s"


def _lines(columns: tuple[str, ...], cells: list[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _at(made: list[Row], what: str, **sizes: object) -> Row | None:
    return next((r for r in made if r["what"] == what and all(r[k] == v for k, v in sizes.items())), None)


def _cell(row: Row | None) -> str:
    return "" if row is None else _shown(row)


def _pivot(made: list[Row], *names: str) -> str:
    """Pictures and classes down, devices across; several figures stand as ends of a range."""
    cells = [
        (
            _power(pictures),
            f"{size.classes:,}",
            *(
                " to ".join(
                    _cell(_at(made, name, pictures=pictures, classes=size.classes, devices=d)) for name in names
                )
                for d in DEVICES
            ),
        )
        for size in (FEW, MANY)
        for pictures in PICTURES
    ]
    return _lines(("pictures", "classes", *(f"{d} device{'s' * (d > 1)}" for d in DEVICES)), cells)


def _power(count: int) -> str:
    """As in 1e8."""
    return f"1e{len(str(count)) - 1}"


def _memory_table(made: list[Row]) -> str:
    names = {
        "group layer, whole": "whole, GiB a device",
        "group layer, split": "split, GiB a device",
        "received in a step, ddp": "received in a step with `ddp`, MiB",
        "received in a step, split": "with `split`, MiB",
    }
    cells = [
        (
            f"{size.classes:,}",
            str(count),
            *(_cell(_at(made, what, classes=size.classes, devices=count)) for what in names),
        )
        for size in (FEW, MANY)
        for count in DEVICES
    ]
    return _lines(("classes", "devices", *names.values()), cells)


def _storage_table(made: list[Row]) -> str:
    kinds = list(dict.fromkeys((str(r["what"]), str(r["unit"])) for r in made if r["pictures"] and not r["devices"]))
    cells = [
        (f"{what}, {unit}", *(_cell(_at(made, what, pictures=count)) for count in PICTURES)) for what, unit in kinds
    ]
    return _lines(("", *(_power(count) for count in PICTURES)), cells)


def fill(text: str, tables: Mapping[str, str]) -> str:
    """Put tables at their places, ``<!-- name -->`` to ``<!-- end -->``."""
    for name, table in tables.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", flags=re.DOTALL)
        text = place.sub(lambda found, table=table: found[1] + table + "\n" + found[2], text)  # type: ignore[misc]
    return text
