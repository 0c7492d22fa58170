"""What calibration did, for a person and for a program: ``report.md``, ``thresholds.csv`` and ``reliability.png``."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from mldecoder.calibration.fit import Calibration
from mldecoder.calibration.plot import draw_reliability
from mldecoder.calibration.reliability import BINS
from mldecoder.training.folder import write

__all__ = ["headline", "write_report"]

_SHOWN = 40  # names in one sentence


def headline(calibration: Calibration) -> list[str]:
    """The few lines that matter."""
    settings, scaling = calibration.settings, calibration.settings.scaling
    ece = (
        f"Expected calibration error {100 * calibration.before.error:.2f} % before, "
        f"{100 * calibration.after.error:.2f} % after"
    )
    if calibration.task == "single-label":
        return [f"{ece} (temperature {scaling.temperature:.3f})."]
    f1 = {rule: f"{100 * figures['OF1']:.2f}" for rule, figures in calibration.figures.items()}
    return [
        f"{ece} (temperature {scaling.temperature:.3f}, bias {scaling.bias:+.3f}; a temperature alone: "
        f"{100 * calibration.only_temperature.error:.2f} %).",
        f"OF1 {f1['0.5']} with 0.5 for all, {f1['global']} with {settings.global_threshold:.3f} for all, "
        f"{f1['per label']} with a threshold for each label ({calibration.wish}).",
    ]


def write_report(folder: Path, calibration: Calibration, labels: Sequence[str], source: str) -> Path:
    """Write the report's files; labels are those that were fitted, in the order of the thresholds."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = "pictures" if calibration.task == "single-label" else "entries (picture × label)"
    draw_reliability(folder / "reliability.png", calibration.before, calibration.after, entries=entries)
    if calibration.settings.thresholds is not None:
        write(folder / "thresholds.csv", _table(calibration, labels))
    path = folder / "report.md"
    write(path, _report(calibration, labels, source))
    return path


def _report(calibration: Calibration, labels: Sequence[str], source: str) -> str:
    single = calibration.task == "single-label"
    what = "of the best class of each picture" if single else "of every known label of every picture"
    parts = [
        "# Calibration",
        f"{calibration.pictures:,} pictures of {source}. " + " ".join(headline(calibration)),
        "All figures below are measured on pictures that nothing was fitted on: each half of the pictures (drawn at "
        "random) is judged by what was fitted on the other half. What is stored in the model was then fitted on all.",
        "## Scores",
        f"![Reliability plot](reliability.png)\n\nScores {what}, in {BINS} bins of equal width. Cross-entropy "
        f"{calibration.loss_before:.4f} before, {calibration.loss_after:.4f} after.",
    ]
    if not single:
        parts += _thresholds(calibration, labels)
    return "\n\n".join(parts) + "\n"


def _thresholds(calibration: Calibration, labels: Sequence[str]) -> list[str]:
    settings = calibration.settings
    names = ("OP", "OR", "OF1", "CP", "CR", "CF1")
    rows = [f"| threshold | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    told = {"0.5": "0.5, raw scores", "global": f"{settings.global_threshold:.4f} for all labels"}
    for rule, figures in calibration.figures.items():
        values = " | ".join(f"{100 * figures[name]:.2f}" for name in names)
        rows.append(f"| {told.get(rule, 'one for each label')} | {values} |")
    parts = [
        "## Thresholds",
        f"Wish: {calibration.wish}. `predict` uses the thresholds of each label by default; they stand in "
        f"`config.json`, and with what each label reaches (on the pictures it was fitted on) in `thresholds.csv`.",
        "\n".join(rows),
    ]
    few = _chosen(labels, settings.fallback)
    if few:
        parts.append(
            f"{len(few)} of {len(labels)} labels have fewer than {calibration.min_positives} positives and take the "
            f"threshold for all: {_listed(few)}."
        )
    if calibration.wish.kind == "precision" and settings.own is not None and settings.fallback is not None:
        missed = _chosen(labels, ~settings.own.reached & ~settings.fallback)
        if missed:
            parts.append(
                f"{len(missed)} labels reach no {calibration.wish} at any threshold and take the one with their "
                f"highest precision: {_listed(missed)}."
            )
    return parts


def _table(calibration: Calibration, labels: Sequence[str]) -> str:
    settings = calibration.settings
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["label", "threshold", "positives", "precision", "recall", "f1", "note"])
    own = settings.own
    if own is None or settings.thresholds is None or settings.fallback is None:
        return text.getvalue()
    for i, label in enumerate(labels):
        alone = not bool(settings.fallback[i])
        reached = [f"{float(values[i]):.4f}" if alone else "" for values in (own.precision, own.recall, own.f1)]
        note = "" if alone else "too few positives: the threshold for all"
        rows.writerow([label, f"{float(settings.thresholds[i]):.6f}", int(own.positives[i]), *reached, note])
    return text.getvalue()


def _chosen(labels: Sequence[str], which: Tensor | None) -> list[str]:
    return [] if which is None else [label for label, yes in zip(labels, which.tolist(), strict=True) if yes]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
