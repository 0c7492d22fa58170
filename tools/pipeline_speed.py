"""How much of the device's speed the input pipeline keeps: the same steps from picture files and from memory.

    python -m tools.pipeline_speed --data coco --init-from resnet50.safetensors --output out

Both run the real training step; from memory it gets the same few batches over and over, decoded before.
"""

import argparse
import itertools
import json
import os
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator

from mldecoder.data.detect import open_dataset
from mldecoder.recipes import load_recipe
from mldecoder.training.build import build_model
from mldecoder.training.console import Display
from mldecoder.training.folder import RunFolder
from mldecoder.training.loop import Trainer
from tools.tables import Table


def speed(trainer: Trainer, steps: int) -> float:
    """Pictures a second over some steps, after a warm-up."""
    for step in range(10):
        trainer._step(step)
    _wait()
    started = time.perf_counter()
    for step in range(steps):
        trainer._step(step)
    _wait()
    return steps * trainer.settings.batch_size / (time.perf_counter() - started)


def decoding(trainer: Trainer, batches: int) -> float:
    """Pictures a second that the workers deliver when nobody computes."""
    next(trainer.batches)
    started = time.perf_counter()
    for _ in range(batches):
        next(trainer.batches)
    return batches * trainer.settings.batch_size / (time.perf_counter() - started)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def table(rows: list[dict[str, float]], commit: str, hardware: str) -> Table:
    """One line a number of workers."""
    return Table(
        "coco-pipeline",
        "The input pipeline on COCO's JPEG files: pictures a second",
        "python -m tools.pipeline_speed --data coco --output out --workers 12",
        commit,
        hardware,
        rows,
        "ResNet-50 with ML-Decoder, 224 px, bf16, batch 64, the whole training step; *from memory* repeats eight "
        "decoded batches. *kept* compares within one run; the speed from memory itself moved between 1,855 and "
        "2,367 from run to run, so single figures are good to about a tenth. Sixteen workers decode more than "
        "twice what the device takes, and still training from files is slowest: they take the cores from the "
        "process that launches the kernels, which is what limits a step of 64 pictures. The default leaves four "
        "cores free.",
    )


def main() -> None:
    """Measure and write a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--init-from")
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--write", type=Path, nargs="*", help="Make the table of these results instead.")
    parser.add_argument("--hardware", default="")
    parser.add_argument("--commit", default="")
    arguments = parser.parse_args()
    if arguments.write:
        rows_of = [json.loads(file.read_text()) for file in arguments.write]
        table(rows_of, arguments.commit, arguments.hardware).write()
        return
    recipe = load_recipe(
        "quick",
        [
            *arguments.set,
            f"data.workers={arguments.workers}",
            "backbone.pretrained=false",
            "training.epochs=1000",
        ],
    )
    data = open_dataset(arguments.data)
    accelerator = Accelerator(mixed_precision="bf16" if torch.cuda.is_available() else "no")
    display = Display(enabled=False)
    model = build_model(recipe, data.labels, data.task, display)
    trainer = Trainer(model, data.train, data.train, recipe, RunFolder(arguments.output), accelerator, display)
    rows: dict[str, float] = {"workers": arguments.workers, "batch_size": recipe.training.batch_size}
    rows["decoding alone"] = decoding(trainer, arguments.steps)
    rows["training from files"] = speed(trainer, arguments.steps)
    few = [next(trainer.batches) for _ in range(8)]
    trainer.batches = itertools.cycle(few)
    rows["training from memory"] = speed(trainer, arguments.steps)
    rows["kept"] = rows["training from files"] / rows["training from memory"]
    rows = {key: round(value, 3) for key, value in rows.items()}
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "pipeline.json").write_text(json.dumps(rows, indent=1))
    sys.stdout.write(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
