"""GAP beside ML-Decoder on the embedded pictures: the same recipe, the same epochs."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from mldecoder.errors import TrainingError
from mldecoder.training.api import Run, train
from mldecoder.training.folder import RunFolder

__all__ = ["compare_heads"]


def compare_heads(output: Path, overrides: Sequence[str] = ()) -> dict[str, Run]:
    """Train both heads into ``output``; an older comparison there is replaced, anything else is left alone."""
    folders = {"GAP": output / "gap", "ML-Decoder": output / "ml-decoder"}
    for folder in folders.values():
        if folder.exists() and not RunFolder(folder).settings.is_file():
            raise TrainingError(f"{folder} is in the way and is not a run. Pass another --output.")
        shutil.rmtree(folder, ignore_errors=True)
    gap = train("scenes", recipe="scenes", output=folders["GAP"], overrides=["head.kind=gap", *overrides])
    ml_decoder = train(
        "scenes",
        recipe="scenes",
        output=folders["ML-Decoder"],
        overrides=overrides,
        compare={"GAP": gap.history()},
    )
    return {"GAP": gap, "ML-Decoder": ml_decoder}
