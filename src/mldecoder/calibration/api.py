"""Calibrate a trained model: fit on labelled pictures, store in its config, report."""

from collections.abc import Callable
from pathlib import Path

from mldecoder.calibration.fit import Calibration, Settings, fit_calibration
from mldecoder.calibration.report import write_report
from mldecoder.calibration.thresholds import Wish
from mldecoder.errors import ConfigError
from mldecoder.model import Classifier, load
from mldecoder.predict.labelled import labelled_part, model_folder, score_known
from mldecoder.training.folder import write

__all__ = ["apply", "calibrate"]


def calibrate(
    run: str | Path,
    data: str | Path | None = None,
    *,
    wish: str | Wish = "f1",
    min_positives: int = 10,
    batch_size: int = 32,
    workers: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Calibration:
    """Make a model's scores honest, choose thresholds, and store both in its ``config.json``.

    A report with a reliability plot is written to the folder ``calibration`` in the run.

    Args:
        run: Run folder (its best model is calibrated) or model folder.
        data: Labelled pictures that the model was not trained on: the validation part, or all where there is none.
            ``None`` takes the validation part of the run's own data.
        wish: ``"f1"`` (the best), ``"precision=0.9"`` or ``"recall=0.8"`` (at least).
        min_positives: Labels with fewer positives take the threshold for all labels.
        batch_size: Pictures scored together.
        workers: Decoding processes; ``None`` chooses.
        advance: Is told how many pictures were scored.

    Example:
        >>> made = calibrate("runs/last", "photos.csv", wish="precision=0.9")  # doctest: +SKIP
        >>> made.after.error  # doctest: +SKIP
        0.006
    """
    chosen = wish if isinstance(wish, Wish) else Wish.read(wish)
    if min_positives < 1:
        raise ConfigError(f"min_positives must be at least 1, got {min_positives}.")
    folder = model_folder(run)
    model = load(folder)
    part = labelled_part(run, data)
    scores, columns = score_known(model, part, batch_size=batch_size, workers=workers, advance=advance)
    made = fit_calibration(scores.logits, scores.targets, model.config.task, wish=chosen, min_positives=min_positives)
    apply(model, made.settings, columns)
    write(folder / "config.json", model.config.model_dump_json(indent=2) + "\n")
    name = "the run's own validation part" if data is None else str(data)
    write_report(Path(run) / "calibration", made, [model.labels[i] for i in columns], name)
    return made


def apply(model: Classifier, settings: Settings, columns: list[int]) -> None:
    """Let a model use a calibration; labels that it was not fitted for take the threshold for all."""
    thresholds: tuple[float, ...] | None = None
    if settings.thresholds is not None and settings.global_threshold is not None:
        each = [settings.global_threshold] * model.num_classes
        for column, value in zip(columns, settings.thresholds.tolist(), strict=True):
            each[column] = value
        thresholds = tuple(each)
    model.config = model.config.model_copy(
        update={
            "temperature": settings.scaling.temperature,
            "bias": settings.scaling.bias or None,
            "global_threshold": settings.global_threshold,
            "thresholds": thresholds,
        }
    )
