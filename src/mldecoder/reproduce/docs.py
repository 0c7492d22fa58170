"""The page of all results, ``docs/results.md``, from the tables in ``benchmarks/``: no figure is typed into it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mldecoder.errors import DataError
from mldecoder.reproduce.registry import TABLES
from mldecoder.reproduce.report import asked_on, claims_of, paper_number, table_lines
from mldecoder.reproduce.sources import SOURCES
from mldecoder.reproduce.table import Table

__all__ = ["page", "write_page"]

_SHOWN: dict[str, tuple[str, ...]] = {  # tables of other tools that speak to the same question
    "heads-coco": ("coco-heads",),
    "query-augmentations": ("zsl-coco",),
    "zsl-groups": ("zsl-scenes",),
}
_LINKED: dict[str, tuple[str, ...]] = {  # too long to stand here
    "throughput": ("head-speed", "heads-cpu", "heads-cpu-9600"),
    "heads-many-classes": ("extreme-classes",),
    "head-options": ("coco-search",),
}
_WHY: dict[str, str] = {  # as far as known, for the small budget; figures stand in the tables
    "heads-coco": (
        "The gain over average pooling is larger than the paper's. Cutout and mixup suit the decoder and not the "
        "pooling, and about a third of the gain is that: without them pooling is better, and still well below. That "
        "decoders are equal within a point took five seeds, since one seed moves a row by half a point."
    ),
    "groups": (
        "How classes are grouped makes less of a difference than the seed does. Both other ways came out a little "
        "above random here, by less than their intervals are wide; a rule that is no worse than random and needs no "
        "word vectors is random."
    ),
    "flops": (
        "The gain is about the same for all three backbones. It is also worth more than a larger backbone: "
        "MobileNetV2 with the decoder is level with ResNet-50 with pooling, at a fifth of the work."
    ),
    "resolutions": (
        "The order is the paper's, the steps are larger: the pictures are 256 px on their shorter side, so 320 px are "
        "enlarged ones, and what they add is tokens, not detail. At 112 px only 16 tokens are left to look at."
    ),
    "query-augmentations": (
        "The unseen classes are 17 here and 81 in the paper, and their mean moves by a point from seed to seed, as "
        "much as the paper's whole effect. That the seen classes lose is clear, and probably a matter of so few steps: "
        "queries that are noise take a part of them."
    ),
    "zsl-groups": (
        "Groups are better here, and worse in the paper. In full decoding every class is read off by the same "
        "projection, as in the paper, and only its query knows its word; in a group it is read off by its word as "
        "well. With 63 trained words that seems to help more than sharing a query costs; the paper has 925. On drawn "
        "pictures, below, groups are worse, as in the paper."
    ),
    "zsl-query-head": (
        "As in the paper a class can only be read off by its word. That learnt queries do as well here as text ones "
        "is not the paper's: with 4 labels a query in 16 groups, and each label read off by its word in either case, "
        "the query has little left to tell. The seen classes do lose by it."
    ),
    "pets": (
        "With sigmoids the decoder came out above pooling with each seed, by a point that three seeds cannot be sure "
        "of; with softmax both are even. One object fills the picture, and the backbone was trained on ImageNet, which "
        "has 24 of the 37 breeds, so that little is left for a head to find."
    ),
    "head-options": (
        "Calm epochs show what crops cut away: a crop keeps all labels of its picture, also of objects that are no "
        "longer in it. Most other options regularise or add parameters, and neither is what so short a training with "
        "strong augmentation lacks. Which one helps depends on the backbone: calm epochs are what ResNet-50 gains by, "
        "and the branch is what the smaller `tf_efficientnet_lite0` gains by. Both together came out above the paper's "
        "head on each, though on the second one by less than five seeds can be sure of."
    ),
}
_WIDE = 8  # columns; a wider table is linked

_HEAD = """# The paper's tables, ours beside them

Every table of the paper (ML-Decoder, arXiv:2111.12933) that holds measurements, with its figures, and ours where they
were run. `mldecoder reproduce TABLE` runs one, `mldecoder reproduce --list` says what each needs, and
`mldecoder reproduce TABLE --data FOLDER --check` whether a folder has what the full table needs. This page is written
by `mldecoder reproduce --write-docs docs/results.md` from `benchmarks/`; under each table stands the command that made
its figures.

## What to expect

- Full runs take days on one GPU and data that is not ours to give, so nothing here is a full run unless it says so. The
  *small* budget asks a table's question on a few thousand real pictures, with ResNet-50 at 224 px and three to five
  seeds: differences between rows can be compared with the paper's, figures cannot.
- The paper's backbones were pretrained on Open Images, and that file is not public. Full runs start from ImageNet
  weights, so expect less than the paper's figures on MS-COCO and Pascal-VOC, as others found before.
- How Open Images was scored is not published. `mldecoder reproduce open-images` scores in every plausible way, side by
  side.
- The strength of the query augmentations, the text vectors and the training of CIFAR-100 and Stanford Cars are not in
  the paper. What we chose stands in the recipes (`mldecoder recipes NAME`).
- TResNet-S is not in timm, and its TResNet-XL is another network than the authors'.
"""


def page(benchmarks: Path, link: str = "../benchmarks") -> str:
    """The page as text; ``link`` is the way from the page to the folder of the tables."""
    made = {name: content for name in TABLES if (content := _read(benchmarks / f"reproduce-{name}.json"))}
    lines = [_HEAD, *_verdict_lines(made)]
    for table in TABLES.values():
        lines += [
            f"## {table.name}: {table.title}",
            "",
            *([] if table.ours else [f"In the paper: {table.source}.", ""]),
        ]
        lines += _own(made[table.name], link, f"reproduce-{table.name}") if table.name in made else _paper_only(table)
        if table.name in made and table.name in _WHY and made[table.name]["budget"] == "small":
            lines += [f"Why, as far as known: {_WHY[table.name]}", ""]
        lines += _variants(table, benchmarks, link)
        lines += _others(table, benchmarks, link)
    return "\n".join(lines).rstrip() + "\n"


def write_page(benchmarks: Path, file: Path) -> None:
    """Write the page."""
    if not benchmarks.is_dir():
        raise DataError(f"{benchmarks} must be the folder of tables; it is not there. Pass --benchmarks.")
    file.parent.mkdir(parents=True, exist_ok=True)
    link = Path(os.path.relpath(benchmarks.resolve(), file.parent.resolve())).as_posix()
    part = file.with_name(f".{file.name}.part")
    part.write_text(page(benchmarks, link), encoding="utf-8")
    part.replace(file)


def _verdict_lines(made: dict[str, dict[str, Any]]) -> list[str]:
    claims = [(name, claim) for name, content in made.items() for claim in claims_of(content)]
    if not claims:
        return []
    lines = ["## What agrees and what does not", "", "| table | budget | the claim | here |", "|---|---|---|---|"]
    for name, claim in claims:
        lines.append(f"| [{name}](#{_anchor(name)}) | {made[name]['budget']} | {claim['claim']} | {claim['verdict']} |")
    return [*lines, ""]


def _anchor(name: str) -> str:
    heading = f"{name}: {TABLES[name].title}".lower()
    kept = "".join(letter for letter in heading if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _own(content: dict[str, Any], link: str, stem: str) -> list[str]:
    lines = [asked_on(content), "", *table_lines(content), ""]
    lines += [f"- {claim['claim']}: **{claim['verdict']}**." for claim in claims_of(content)]
    lines += ["", content["note"], ""] if content["note"] else [""]
    picture = f"![{stem.removeprefix('reproduce-')}]({link}/{stem}.png)"
    return [*lines, picture, "", f"{_made_by(content)} Settings: [{stem}.md]({link}/{stem}.md).", ""]


def _variants(table: Table, benchmarks: Path, link: str) -> Iterator[str]:
    """The same table with another backbone, or as it was chosen on a part of the training pictures."""
    for file in sorted(benchmarks.glob(f"reproduce-{table.name}-*.json")):
        content = _read(file)
        if content is None or content["table"] != table.name:
            continue
        yield from [
            "### " + ("On " + content["data"] if file.stem.endswith("-choice") else f"With {content['backbone']}"),
            "",
        ]
        yield from _own({**content, "note": ""}, link, file.stem)


def _paper_only(table: Table) -> list[str]:
    given = [name for name in table.metrics if any(name in row.paper for row in table.rows)]
    lines = [f"Rows: {'; '.join(row.name for row in table.rows)}."]
    if given:
        lines = ["| row | " + " | ".join(f"paper: {name}" for name in given) + " |", "|---|" + "--:|" * len(given)]
        for row in table.rows:
            figures = [paper_number(row.paper[name]) if name in row.paper else "not given" for name in given]
            lines.append(f"| {row.name} | " + " | ".join(figures) + " |")
    needs = "a GPU" if table.method == "bench" else SOURCES[table.data].name
    told = f"Not run here. In full it needs {needs}: `mldecoder reproduce {table.name} --budget full"
    told += "`." if table.method == "bench" else " --data FOLDER`."
    return [*lines, "", *([table.note, ""] if table.note else []), told, ""]


def _others(table: Table, benchmarks: Path, link: str) -> Iterator[str]:
    for name in _SHOWN.get(table.name, ()):
        content = _read(benchmarks / f"{name}.json")
        if content is None:
            continue
        rows: list[dict[str, Any]] = content["rows"]
        columns = [column for column in rows[0] if column != "settings"][:_WIDE]
        yield f"Also [{_title(benchmarks, name)}]({link}/{name}.md):"
        yield ""
        yield "| " + " | ".join(columns) + " |"
        yield "|" + "---|" * len(columns)
        for row in rows:
            yield "| " + " | ".join(str(row.get(column, "")) for column in columns) + " |"
        yield ""
        yield _made_by(content)
        yield ""
    for name in _LINKED.get(table.name, ()):
        content = _read(benchmarks / f"{name}.json")
        if content is not None:
            yield f"Also [{_title(benchmarks, name)}]({link}/{name}.md). {_made_by(content)}"
            yield ""


def _made_by(content: dict[str, Any]) -> str:
    hardware = content.get("hardware")
    where = hardware.get("text") if isinstance(hardware, dict) else hardware
    return f"Made by `{content['command']}` at commit {content.get('commit') or 'unknown'} on {where}."


def _title(benchmarks: Path, name: str) -> str:
    file = benchmarks / f"{name}.md"
    first = file.read_text(encoding="utf-8").splitlines()[0] if file.is_file() else name
    return first.removeprefix("# ").strip()


def _read(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} must be JSON; it cannot be read ({error}).") from None
    return content if content.get("rows") else None
