"""How much say the nearest trained labels should have in the score of a new one, and how few of them.

    python -m tools.zsl_neighbours dump  out/coco-runs --data out/inner --output logits
    python -m tools.zsl_neighbours table logits --hardware "one H200, 16 cores" --commit HASH

``dump`` scores the validation part with every finished run of ``tools.zsl_study coco``, whose held-out classes are not
the 17 that are reported. ``table`` mixes the logits for several shares and temperatures; it needs no GPU.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

import mldecoder as mld
from mldecoder.data.detect import open_dataset
from mldecoder.heads.neighbours import Neighbours
from mldecoder.training.scoring import score
from tools.tables import Table

SHARES = (0.0, 0.3, 0.5, 0.7, 1.0)
TEMPERATURES = (0.01, 0.02, 0.05, 0.1)


def dump(runs: Path, data: str, output: Path) -> None:
    """Logits, targets and vectors of every run, a file each."""
    output.mkdir(parents=True, exist_ok=True)
    part = open_dataset(data).val
    if part is None:
        raise SystemExit(f"{data} has no validation part.")
    accelerator = Accelerator()
    for run in sorted(path.parent for path in runs.glob("*/metrics.json")):
        model = mld.load(run).to(accelerator.device)
        found = score(model, part.keep_labels(model.labels), model.config.preprocessing, accelerator, batch_size=64)
        words = model.text_vectors_for(model.labels)
        np.savez_compressed(
            output / f"{run.name}.npz",
            logits=found.logits.numpy().astype(np.float16),
            targets=found.targets.numpy(),
            vectors=words.cpu().numpy(),
            labels=np.array(model.labels),
            unseen=np.array(model.unseen),
        )


def mixed(content: Mapping[str, Any], share: float, temperature: float) -> float:
    """mAP in percent of the held-out labels for one way of mixing."""
    labels, unseen = list(content["labels"]), set(content["unseen"])
    new = [i for i, label in enumerate(labels) if label in unseen]
    trained = [i for i, label in enumerate(labels) if label not in unseen]
    logits, vectors = torch.from_numpy(content["logits"]).float(), torch.from_numpy(content["vectors"]).float()
    near = Neighbours(vectors[trained], share=share, temperature=temperature)
    scores = near(logits[:, new], vectors[new], logits[:, trained])
    return 100 * mld.metrics.mean_average_precision(scores, torch.from_numpy(content["targets"])[:, new]).value


def rows(folder: Path) -> list[dict[str, object]]:
    """A line for each run and temperature, a column for each share."""
    lines: list[dict[str, object]] = []
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as content:
            for temperature in TEMPERATURES:
                line: dict[str, object] = {"run": file.stem, "temperature": temperature}
                line |= {f"share {share}": f"{mixed(content, share, temperature):.1f}" for share in SHARES}
                lines.append(line)
    return lines


def main(words: Sequence[str] | None = None) -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["dump", "table"])
    parser.add_argument("folder", type=Path, help="Runs, or the files that dump wrote.")
    parser.add_argument("--data", help="The dataset to score.")
    parser.add_argument("--output", type=Path, default=Path("logits"))
    parser.add_argument("--hardware", default="")
    parser.add_argument("--commit", default="")
    arguments = parser.parse_args(words)
    if arguments.mode == "dump":
        dump(arguments.folder, arguments.data, arguments.output)
        return
    Table(
        "zsl-neighbours",
        "New labels scored by the trained labels nearest to them: how much, and by how few",
        "python -m tools.zsl_neighbours table logits",
        arguments.commit,
        arguments.hardware,
        rows(arguments.folder),
        "mAP of 13 classes held out of COCO's 63 seen ones, on a fifth of the training part; share 0 is the head "
        "alone. One seed each. The runs are those of zsl-coco-search.",
    ).write()


if __name__ == "__main__":
    main()
