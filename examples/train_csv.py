"""Train on a table of your own: one row a picture, its tags separated by a bar.

python examples/train_csv.py

The same on the command line: mldecoder train --data photos/tags.csv
"""

import csv
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

import mldecoder as mld
from mldecoder.data import scenes

# Small and short, so that the example takes seconds; leave `recipe` and `overrides` out for good defaults.
TINY = [
    "head.num_queries=null",  # one query a label
    "head.width=64",
    "head.ff_width=64",
    "training.epochs=2",
    "training.ema_decay=null",
]


def write_table(folder: Path, count: int) -> Path:
    """Drawn pictures and a table of their colours, in place of your own."""
    path = folder / "tags.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "tags"])
        for i in range(count):
            picture, tags = scenes.draw(i, "train")
            name = f"photo-{i:04}.png"
            Image.fromarray(picture).save(folder / name)
            colours = {tag.split()[0] for tag in tags}
            rows.writerow([name, "|".join(sorted(colours))])
    return path


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        table = write_table(folder, count=240)
        run = mld.train(table, recipe="scenes", output=folder / "run", overrides=TINY, quiet=True)
        print(f"mAP {run.metrics['mAP']:.1f} on pictures held back; report in {run.path.name}/")
        [prediction] = run.model().predict(folder / "photo-0000.png", top_k=2, threshold=0.0)
        print("photo-0000.png:", ", ".join(f"{tag.label} {tag.score:.2f}" for tag in prediction.tags))


if __name__ == "__main__":
    main()
