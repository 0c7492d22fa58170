"""Heads on real COCO pictures: what `quick` is made of, and the table of GAP beside ML-Decoder.

``search`` compares settings on a fifth of the training part, so that the validation part stays unseen until the table;
``table`` trains every head with every seed on the whole training part. Both go through ``mldecoder train``.

    python -m tools.coco_study search --data coco --init-from resnet50.safetensors --output out
    python -m tools.coco_study table  --data coco --init-from resnet50.safetensors --output out
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HEADS = {
    "GAP": ["head.kind=gap", "augment.cutout=0.0", "augment.mixup=0.0"],  # what suits it best in the search
    "GAP as quick": ["head.kind=gap"],
    "ML-Decoder K=80": ["head.num_queries=80"],
    "ML-Decoder K=20": ["head.num_queries=20"],
}


@dataclass(frozen=True)
class Job:
    """One training run: its name, its overrides, its seed."""

    name: str
    overrides: list[str] = field(default_factory=list)
    seed: int = 0


def inner_split(data: Path, folder: Path) -> Path:
    """A COCO folder whose validation part is a fifth of the training part."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "annotations").mkdir(exist_ok=True)
    if not (folder / "images").exists():
        (folder / "images").symlink_to((data / "images").resolve())
    whole = json.loads((data / "annotations" / "instances_train.json").read_text())
    images = sorted(whole["images"], key=lambda image: image["id"])
    random.Random(0).shuffle(images)
    cut = len(images) // 5
    for name, part in (("val", images[:cut]), ("train", images[cut:])):
        ids = {image["id"] for image in part}
        notes = [note for note in whole["annotations"] if note["image_id"] in ids]
        content = {**whole, "images": part, "annotations": notes}
        (folder / "annotations" / f"instances_{name}.json").write_text(json.dumps(content))
    return folder


def run(job: Job, data: Path, init_from: Path, output: Path, workers: int) -> dict[str, object]:
    """Train one job through the command line; its row."""
    folder = output / f"{job.name.replace(' ', '_')}-{job.seed}"
    words = ["train", "--recipe", "quick", "--data", str(data), "--init-from", str(init_from), "--output", str(folder)]
    own = ["training.eval_every=15", f"training.seed={job.seed}", f"data.workers={workers}"]
    for override in [*job.overrides, *own]:
        words += ["--set", override]
    started = time.time()
    done = subprocess.run([sys.executable, "-m", "mldecoder", *words], capture_output=True, text=True, check=False)
    row: dict[str, object] = {"name": job.name, "seed": job.seed, "overrides": job.overrides}
    if done.returncode:
        return row | {"error": done.stderr.strip().splitlines()[-1:]}
    metrics = json.loads((folder / "metrics.json").read_text())
    history = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    speed = sorted(entry["images_per_second"] for entry in history)[len(history) // 2]
    row |= {key: round(metrics[key], 2) for key in ("ema_mAP", "last_mAP", "mAP")}
    return row | {"images_per_second": round(speed), "seconds": round(time.time() - started)}


def run_all(jobs: list[Job], data: Path, init_from: Path, output: Path, parallel: int) -> list[dict[str, object]]:
    """Run the jobs, some side by side, and write what is done so far after each."""
    rows: list[dict[str, object]] = []
    workers = max(1, (os.cpu_count() or 1) // parallel)

    def one(job: Job) -> None:
        row = run(job, data, init_from, output / "runs", workers)
        rows.append(row)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        (output / "rows.json").write_text(json.dumps(rows, indent=1))

    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(one, jobs))
    return rows


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["search", "table"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--init-from", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--jobs", type=Path, help="JSON list of [name, overrides] to search over.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=3)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    data = arguments.data
    if arguments.mode == "search":
        data = inner_split(data, arguments.output / "inner")
        jobs = [Job(name, overrides) for name, overrides in json.loads(arguments.jobs.read_text())]
    else:
        jobs = [Job(name, overrides, seed) for seed in range(arguments.seeds) for name, overrides in HEADS.items()]
    run_all(jobs, data, arguments.init_from, arguments.output, arguments.parallel)


if __name__ == "__main__":
    main()
