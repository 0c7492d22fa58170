"""A label known by five pictures instead of a word: how well either is found, on a trained zero-shot run.

    python -m tools.zsl_pictures RUN --data scenes --shots 5 --draws 4

For every label that the run never trained, a vector is made of a few training pictures in each of several ways, and the
validation part is ranked by it. Printed is the mean average precision over labels and draws, beside that of the word.
Full decoding only: in groups a score depends on the company of the label.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import mldecoder as mld
from mldecoder.data.dataset import ImageSet
from mldecoder.data.detect import open_dataset
from mldecoder.data.images import TorchImages
from mldecoder.data.transforms import evaluation_transform, normalise
from mldecoder.heads import ZeroShotMLDecoder
from mldecoder.heads.zero_shot_labels import vector_from_pictures
from mldecoder.metrics import average_precision

Way = Callable[[ZeroShotMLDecoder, Tensor, Tensor], Tensor]
WAYS: dict[str, Way] = {
    f"mean of words, temperature {temperature}": (
        lambda head, x, known, t=temperature: vector_from_pictures(head, x, known, temperature=t)  # type: ignore[misc]
    )
    for temperature in (0.1, 0.25, 0.5, 1.0, 2.0)
}
WAYS |= {
    f"and {steps} gradient steps": (
        lambda head, x, known, s=steps: vector_from_pictures(head, x, known, temperature=1.0, steps=s)  # type: ignore[misc]
    )
    for steps in (5, 20)
}


def pictures(model: mld.Classifier, part: ImageSet, indices: list[int]) -> Tensor:
    """Some pictures as the model wants them: (p, 3, h, w)."""
    images = TorchImages(part, evaluation_transform(model.config.preprocessing), 1.0)
    return normalise(torch.stack([images[i]["image"] for i in indices]), model.config.preprocessing)


@torch.no_grad()
def measure(model: mld.Classifier, train: ImageSet, val: ImageSet, shots: int, draws: int) -> dict[str, float]:
    """The mean average precision over the unseen labels of the word and of every way, in percent."""
    head, known = model.head, model.text_vectors_for(model.seen)
    if not isinstance(head, ZeroShotMLDecoder) or head.group_size > 1 or not model.unseen:
        raise SystemExit("This needs a zero-shot run with full decoding and labels that were never trained.")
    vectors, owner = [model.text_vectors_for(model.unseen)], [("word", label) for label in model.unseen]
    rng = np.random.default_rng(0)
    for label in model.unseen:
        column = train.labels.index(label)
        having = np.flatnonzero(train.targets.keep_classes([column]).rows(np.arange(len(train)))[:, 0] == 1)
        for _ in range(draws):
            chosen = rng.choice(having, size=min(shots, len(having)), replace=False).tolist()
            features = model.backbone(pictures(model, train, chosen).to(known))
            for name, way in WAYS.items():
                vectors.append(way(head, features, known).unsqueeze(0))
                owner.append((name, label))
    scores = []
    for start in range(0, len(val), 100):
        batch = list(range(start, min(start + 100, len(val))))
        scores.append(model(pictures(model, val, batch).to(known), torch.cat(vectors)).float().cpu())
    rows = torch.from_numpy(val.targets.rows(np.arange(len(val))))
    targets = rows[:, [val.labels.index(label) for _, label in owner]]
    precision = average_precision(torch.cat(scores), targets)  # one for each vector
    names = dict.fromkeys(name for name, _ in owner)
    return {n: 100 * float(precision[[o[0] == n for o in owner]].nanmean()) for n in names}


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", default="scenes")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.data)
    if dataset.val is None:
        raise SystemExit("The data needs a validation part.")
    model = mld.load(arguments.run, map_location=arguments.device)
    found = measure(model, dataset.train, dataset.val, arguments.shots, arguments.draws)
    sys.stdout.write(json.dumps({name: round(value, 2) for name, value in found.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
