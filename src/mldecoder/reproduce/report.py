"""A table on disk: Markdown for people, JSON for programs, a plot; all from the same summary."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mldecoder import __version__
from mldecoder.reproduce.interval import Interval
from mldecoder.reproduce.plan import Wish, portable
from mldecoder.reproduce.summary import Line, Summary
from mldecoder.reproduce.table import OURS

__all__ = [
    "Origin",
    "asked_on",
    "claims_of",
    "command_of",
    "document",
    "markdown",
    "paper_number",
    "table_lines",
    "write_report",
]


@dataclass(frozen=True)
class Origin:
    """Where a table comes from."""

    command: str
    commit: str
    hardware: str


def command_of(table: str, wish: Wish) -> str:
    """The command that makes the table, without the folders of this machine."""
    words = ["mldecoder", "reproduce", table, "--budget", wish.budget]
    if wish.budget != "tiny":
        words += ["--data", wish.data_word]
    if wish.backbone is not None:
        words += ["--backbone", wish.backbone]
    if wish.init_from is not None:
        words += ["--init-from", wish.init_from.name]
    words += ["--seeds", str(wish.seeds)]
    for row in wish.rows:
        words += ["--row", row]
    for text in wish.overrides:
        words += ["--set", portable(text)]
    return shlex.join([*words, *(["--choose"] if wish.choose else [])])


def document(summary: Summary, wish: Wish, origin: Origin) -> dict[str, Any]:
    """Everything, as JSON holds it."""
    table = summary.table
    return {
        "command": origin.command,
        "commit": origin.commit,
        "hardware": origin.hardware,
        "version": __version__,
        "table": table.name,
        "title": table.title,
        "source": table.source,
        "note": table.note,
        "budget": wish.budget,
        "data": wish.data_name,
        "backbone": wish.backbone,
        "metric": table.metric,
        "base": table.base,
        "rows": [_row(summary, line) for line in summary.lines],
        "claims": [
            {
                "claim": verdict.claim.text,
                "row": verdict.claim.row,
                "base": verdict.claim.base,
                "metric": verdict.claim.metric or table.metric,
                "outcome": verdict.outcome,
                "verdict": verdict.text,
            }
            for verdict in summary.verdicts
        ],
    }


def markdown(content: dict[str, Any]) -> str:
    """The table in Markdown, from :func:`document`."""
    source = "" if content["source"] == OURS else f"In the paper: {content['source']}. "
    lines = [f"# {content['title']}", "", f"{source}{asked_on(content)}"]
    lines += ["", *table_lines(content), ""]
    if tested := claims_of(content):
        lines += ["What it says:" if content["source"] == OURS else "What the paper reads off it:", ""]
        lines += [f"- {claim['claim']}: **{claim['verdict']}**." for claim in tested]
        lines.append("")
    if content["note"]:
        lines += [content["note"], ""]
    lines += ["Recipes and overrides:", "", *_override_lines(_shown(content)), ""]
    lines += [
        "Figures are those after the last epoch, of the averaged weights where there are some; ± is the deviation over "
        "seeds, intervals are 95% of Student's t over paired seeds.",
        "",
        f"Made by `{content['command']}` at commit {content['commit']} on {content['hardware']}.",
        "",
    ]
    return "\n".join(lines)


def claims_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims worth telling: all of the paper's, and of our own those that were tested."""
    own = content["source"] == OURS
    return [claim for claim in content["claims"] if not own or claim["outcome"] != "not run"]


def asked_on(content: dict[str, Any]) -> str:
    """What it was run on, and whether that is the paper's."""
    if content["source"] == OURS and content["budget"] != "tiny":
        return f"Run on `{content['data']}`."
    if content["budget"] == "full":
        return f"Run in the paper's setting on {content['data']}."
    told = "seconds of training on drawn pictures, which say nothing about heads"
    if content["budget"] == "small":
        told = f"the same question on `{content['data']}`, a small part, in a shorter training"
    if content["source"] == OURS:
        return f"Here: {told}."
    return (
        f"Here: {told}. The paper's figures are of its own data and setting, so compare differences between rows, "
        f"not the figures themselves."
    )


def table_lines(content: dict[str, Any]) -> list[str]:
    """The rows as a Markdown table."""
    metric, base = content["metric"], content["base"]
    rows = _shown(content)
    columns: dict[str, list[str]] = {"row": [row["row"] for row in rows]}
    counts = [len(row["metrics"].get(metric, {}).get("seeds", ())) for row in rows]
    if len(set(counts) - {0}) > 1:
        columns["seeds"] = [str(count or "") for count in counts]
    for name in [metric, *(name for name in _metrics(rows) if name != metric)]:
        own = [row["metrics"].get(name, {}) for row in rows]
        columns[name] = [_with_spread(one) for one in own]
        if name == metric:
            columns[f"less {base} (95%)"] = [row["less_base_text"] for row in rows]
        columns[f"paper: {name}"] = [paper_number(one.get("paper")) for one in own]
        if name == metric:
            columns[f"paper: less {base}"] = [_signed(row["paper_less_base"]) for row in rows]
            columns["ours less paper"] = [_signed(one.get("difference")) for one in own]
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    lines = ["| " + " | ".join(shown) + " |", "|---|" + "--:|" * (len(shown) - 1)]
    return lines + ["| " + " | ".join(cells) + " |" for cells in zip(*shown.values(), strict=True)]


def _shown(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows with a figure, ours or the paper's; all where there is none yet."""
    rows: list[dict[str, Any]] = content["rows"]
    return [row for row in rows if row["metrics"]] or rows


def write_report(summary: Summary, wish: Wish, origin: Origin, folder: Path, stem: str) -> list[Path]:
    """Write ``STEM.md``, ``STEM.json`` and, where something was measured, ``STEM.png``."""
    from mldecoder.reproduce.plot import plot

    folder.mkdir(parents=True, exist_ok=True)
    content = document(summary, wish, origin)
    files = [folder / f"{stem}.md", folder / f"{stem}.json"]
    _replace(files[0], markdown(content))
    _replace(files[1], json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    picture = folder / f"{stem}.png"
    if any(line.of(summary.table.metric) for line in summary.lines):
        plot(summary, picture, f"{wish.budget}, {wish.data_name}")
        files.append(picture)
    return files


def _row(summary: Summary, line: Line) -> dict[str, Any]:
    table = summary.table
    difference = summary.less_base(line, table.metric)
    metrics: dict[str, Any] = {}
    names = [*table.metrics, *(name for name in line.values if name.startswith("mAP ("))]
    for name in names:
        found, paper = line.mean(name), line.row.paper.get(name)
        if found is None and paper is None:
            continue
        metrics[name] = {
            "mean": _rounded(found),
            "spread": _rounded(line.spread(name)),
            "seeds": {str(seed): value for seed, value in sorted(line.values.get(name, {}).items())},
            "paper": paper,
            "difference": None if found is None or paper is None else _rounded(found - paper),
        }
    return {
        "row": line.row.name,
        "cited": line.row.cited,
        "metrics": metrics,
        "less_base": _ends(difference),
        "less_base_text": "" if difference is None else str(difference),
        "paper_less_base": _rounded(summary.paper_less_base(line, table.metric)),
        "recipe": line.recipe,
        "overrides": [portable(text) for text in line.overrides if not text.startswith("training.seed=")],
        "seconds": _rounded(line.seconds),
        "note": line.row.note,
    }


def _ends(found: Interval | None) -> list[float | None] | None:
    if found is None:
        return None
    ends = (found.low, found.high) if found.count > 1 else (None, None)
    return [_rounded(value) for value in (found.mean, *ends)]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _metrics(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["metrics"]))


def _override_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What all rows have in common, and what each has of its own."""
    run = [row for row in rows if row["recipe"]]
    first = run[0]["overrides"] if len(run) > 1 else []
    shared = [text for text in first if all(text in row["overrides"] for row in run)]
    lines = [f"- all rows: `{' '.join(shared)}`"] if shared else []
    for row in rows:
        if row["cited"]:
            continue
        own = " ".join(text for text in row["overrides"] if text not in shared)
        told = f"recipe `{row['recipe']}`" + (f" with `{own}`" if own else "") if row["recipe"] else "not run"
        note = f" ({row['note']})" if row["note"] else ""
        lines.append(f"- {row['row']}: {told}{note}")
    return lines


def _with_spread(metric: dict[str, Any]) -> str:
    middle, spread = metric.get("mean"), metric.get("spread")
    if middle is None:
        return ""
    return f"{_number(middle)} ± {spread:.2f}" if spread else _number(middle)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


def paper_number(value: float | None) -> str:
    """A figure as the paper prints it: one decimal, two where it has them, none where it is large."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 200 else f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"


def _replace(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)
