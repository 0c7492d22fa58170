"""Exported files: size, largest difference, speed beside torch, and what lower precision costs in mAP.

    python -m tools.export_table --write --commit HASH --hardware "two CPU cores"
    python -m tools.export_table --model runs/coco --data coco --write --commit HASH --hardware "two CPU cores"

The first measures six backbones with untrained weights; speed does not depend on them. The second measures a trained
model on the validation part of a dataset. Run it while nothing else runs: torch and the file take turns, on as many
threads as --threads says, and the median of the turns counts.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from accelerate import Accelerator
from torch import Tensor, nn

import mldecoder as mld
from mldecoder.export import Precision, export_model
from mldecoder.export.check import Run
from mldecoder.export.onnx import runner
from mldecoder.predict.labelled import labelled_part
from mldecoder.training.scoring import score
from tools.tables import Table

BACKBONES = (
    "resnet50",
    "vit_small_patch16_224",
    "swin_tiny_patch4_window7_224",
    "convnext_tiny",
    "efficientnet_b0",
    "tresnet_m",
)
PRECISIONS: tuple[Precision, ...] = ("float32", "float16", "int8")
SIZE, CLASSES = 224, 80
_PAUSE = 0.2  # seconds


def speed_rows(backbones: Sequence[str], *, threads: int, turns: int, folder: Path) -> list[dict[str, object]]:
    """Untrained models with the default head, exported in every precision and timed beside torch."""
    rows: list[dict[str, object]] = []
    for name in backbones:
        model = mld.create_model(name, num_classes=CLASSES, img_size=SIZE).eval()
        for precision in PRECISIONS:
            made = export_model(model, folder / "model.onnx", precision=precision)
            file = runner(made.path, threads=threads)
            row: dict[str, object] = {
                "backbone": name,
                "precision": precision,
                "MB": f"{made.bytes / 1e6:.1f}",
                "largest difference": f"{made.difference:.1e}",
            }
            for batch in (1, 8):
                images = torch.randn(batch, 3, SIZE, SIZE)
                ours, theirs = in_turns(_torch(model, images), _file(file, images), turns)
                row[f"torch ms, batch {batch}"] = f"{1000 * ours:.1f}"
                row[f"onnxruntime ms, batch {batch}"] = f"{1000 * theirs:.1f}"
                row[f"times as fast, batch {batch}"] = f"{ours / theirs:.2f}"
            rows.append(row)
            _say(row)
    return rows


def map_rows(run: str, data: str, *, threads: int, limit: int | None, folder: Path) -> list[dict[str, object]]:
    """A trained model on labelled pictures: torch, and the file in every precision."""
    model = mld.load(run)
    part = labelled_part(run, data)
    there = set(part.labels)
    columns = [i for i, label in enumerate(model.labels) if label in there]
    part = part.keep_labels([model.labels[i] for i in columns])
    if limit is not None and limit < len(part):
        numbers = torch.randperm(len(part), generator=torch.Generator().manual_seed(0))[:limit]
        part = part.select(numbers.sort().values.numpy())
    accelerator = Accelerator(cpu=True)
    rows: list[dict[str, object]] = []

    def add(name: str, module: nn.Module, megabytes: float, difference: str) -> None:
        found = score(module, part, model.config.preprocessing, accelerator, batch_size=16)
        value = 100 * mld.metrics.mean_average_precision(found.logits, found.targets).value
        first = float(str(rows[0]["mAP"])) if rows else value
        row: dict[str, object] = {
            "file": name,
            "MB": f"{megabytes:.1f}",
            "largest difference of the check": difference,
            "mAP": f"{value:.3f}",
            "mAP lost": f"{first - value:.3f}",
            "pictures": len(found.targets),
        }
        rows.append(row)
        _say(row)

    weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    add("torch", _Columns(model, columns), weights / 1e6, "")
    for precision in PRECISIONS:
        made = export_model(model, folder / "model.onnx", precision=precision)
        file = runner(made.path, threads=threads)
        from_file = _from_file(file)
        add(f"onnx {precision}", _Columns(from_file, columns), made.bytes / 1e6, f"{made.difference:.1e}")
    return rows


def in_turns(first: Callable[[], object], second: Callable[[], object], turns: int) -> tuple[float, float]:
    """Median seconds of two functions that take turns.

    Threads of both wait busily for a moment after their work, and would take the cores from the other; so a pause
    comes first, and a run that is not timed.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for function, kept in zip((first, second), seconds, strict=True):
            time.sleep(_PAUSE)
            function()
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return median(seconds[0]), median(seconds[1])


class _Columns(nn.Module):
    """Some logits of a function of pictures."""

    def __init__(self, function: Callable[[Tensor], Tensor], columns: Sequence[int]) -> None:
        super().__init__()
        self.function, self.columns = function, list(columns)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the labels that the data has."""
        return self.function(images)[:, self.columns]


def _torch(model: nn.Module, images: Tensor) -> Callable[[], object]:
    def step() -> object:
        with torch.inference_mode():
            return model(images)

    return step


def _file(file: Run, images: Tensor) -> Callable[[], object]:
    inputs = [images.numpy()]
    return lambda: file(inputs)


def _from_file(file: Run) -> Callable[[Tensor], Tensor]:
    return lambda images: torch.from_numpy(file([images.numpy()]))


def _say(row: dict[str, object]) -> None:
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)  # noqa: T201


def main() -> None:
    """Measure, print, and write the table if wished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbones", default=",".join(BACKBONES))
    parser.add_argument("--model", help="a trained run, for the loss of mAP")
    parser.add_argument("--data", help="labelled pictures for it")
    parser.add_argument("--limit", type=int, help="at most so many pictures")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--hardware", default="unknown hardware")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    command = "python -m tools.export_table --write"
    with TemporaryDirectory() as name:
        if arguments.model:
            rows = map_rows(
                arguments.model, arguments.data, threads=arguments.threads, limit=arguments.limit, folder=Path(name)
            )
            table = Table(
                "export-map",
                "What lower precision costs: mAP of one model, in torch and exported",
                f"{command} --model RUN --data DATA" + (f" --limit {arguments.limit}" if arguments.limit else ""),
                arguments.commit,
                arguments.hardware,
                rows,
                "mAP in percent on the validation part; *mAP lost* is against torch in float32. The largest difference "
                "is that of the logits on the seven drawn pictures that the export checks itself with.",
            )
        else:
            backbones = arguments.backbones.split(",")
            rows = speed_rows(backbones, threads=arguments.threads, turns=arguments.turns, folder=Path(name))
            table = Table(
                "export",
                "Exported to ONNX: size, largest difference of logits, and time of a batch beside torch",
                command,
                arguments.commit,
                arguments.hardware,
                rows,
                f"{SIZE} px, ML-Decoder with its default sizes and {CLASSES} classes, untrained weights, "
                f"{arguments.threads} threads; median of {arguments.turns} turns. torch is float32 in eager mode in "
                "every row. int8 leaves convolutions in float32, so it helps transformers and the head.",
            )
    if arguments.write:
        table.write()


if __name__ == "__main__":
    main()
