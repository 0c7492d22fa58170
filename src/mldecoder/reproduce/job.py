"""One run of a table: trained, resumed or found finished; ``python -m mldecoder.reproduce.job FILE`` does one alone."""

import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from mldecoder import __version__
from mldecoder.errors import MLDecoderError
from mldecoder.reproduce.plan import Job
from mldecoder.reproduce.results import Record

__all__ = ["job_from", "job_to", "record_of", "run_job"]

_RECORD = "reproduce.json"
_NOT_FIGURES = {"epoch", "lr", "seconds", "images_per_second"}


def run_job(job: Job, *, workers: int | None = None, quiet: bool = False) -> Record:
    """Bring a run to its end, from wherever it stands, and say what came of it.

    Args:
        job: The run.
        workers: Processes that read pictures, where runs share a machine.
        quiet: Print nothing.
    """
    from mldecoder.training.api import train
    from mldecoder.training.folder import RunFolder

    folder = RunFolder(job.folder)
    if (done := record_of(job)) is not None:
        return done
    if folder.settings.is_file():
        if not folder.metrics.is_file():
            train(output=folder.path, resume=True, quiet=quiet)
    else:
        extra = [] if workers is None else [f"data.workers={workers}"]
        train(
            job.data,
            recipe=job.recipe,
            output=folder.path,
            init_from=job.init_from,
            overrides=[*job.overrides, *extra],
            quiet=quiet,
        )
    record = _record(job, folder)
    _write(folder.path / _RECORD, json.dumps(asdict(record), indent=1))
    _tidy(folder)
    return record


def record_of(job: Job) -> Record | None:
    """What a finished run left in its folder."""
    file = Path(job.folder) / _RECORD
    if not file.is_file():
        return None
    entry = json.loads(file.read_text(encoding="utf-8"))
    return Record(**{**entry, "overrides": tuple(entry["overrides"])})


def job_to(job: Job, file: Path) -> None:
    """Write a job for another process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    _write(file, json.dumps(asdict(job), indent=1))


def job_from(file: Path) -> Job:
    """Read a job."""
    entry = json.loads(file.read_text(encoding="utf-8"))
    return Job(**{**entry, "overrides": tuple(entry["overrides"]), "measures": tuple(entry["measures"])})


def _record(job: Job, folder: Any) -> Record:  # noqa: ANN401 - a RunFolder, imported late
    from mldecoder.reproduce.measure import measure

    history = folder.read_history()
    end = json.loads(folder.metrics.read_text(encoding="utf-8"))
    metrics = _figures(history[-1])
    metrics["img/s"] = median(row["images_per_second"] for row in history)
    metrics |= {f"best_{name}": end[name] for name in ("mAP", "top1", "unseen_mAP", "seen_mAP") if name in end}
    metrics |= measure(job, folder.path)
    init = None if job.init_from is None else Path(job.init_from).name
    return Record(
        key=job.key,
        table=job.table,
        row=job.row,
        seed=job.seed,
        budget=job.budget,
        data=job.data_name,
        recipe=job.recipe,
        overrides=job.overrides,
        init_from=init,
        metrics={name: round(value, 4) for name, value in metrics.items()},
        seconds=round(sum(row["seconds"] for row in history), 1),
        version=__version__,
        device=_device(),
    )


def _figures(last: dict[str, float]) -> dict[str, float]:
    """Figures after the last epoch, of the averaged weights where there are some: no epoch is chosen by them."""
    own = {name: value for name, value in last.items() if not name.startswith("ema_") and name not in _NOT_FIGURES}
    return {name: last.get(f"ema_{name}", value) for name, value in own.items()}


def _device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {os.cpu_count()} cores"


def _tidy(folder: Any) -> None:  # noqa: ANN401
    """A finished run is not resumed: the best weights stay, what was kept to go on from goes."""
    folder.checkpoint.unlink(missing_ok=True)
    for path in (folder.last, folder.ema, folder.path / "tensorboard", folder.path / "checkpoint"):
        shutil.rmtree(path, ignore_errors=True)


def _write(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(file)


def main(arguments: list[str]) -> int:
    """Run the job of a file, and leave its record in the run's folder."""
    workers = int(arguments[1]) if len(arguments) > 1 else None
    try:
        run_job(job_from(Path(arguments[0])), workers=workers)
    except MLDecoderError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
