"""Vectors of a list of labels as a small file, for machines that lack the encoder: ``text.encoder=words:FILE``.

    python -m tools.label_vectors labels/coco_80.txt coco_minilm.npz --encoder minilm \\
        --template "a photo of a {}" --template "a {}" --template "{}"
    python -m tools.label_vectors labels/coco_80.txt coco_glove50.npz --encoder glove-50
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mldecoder.text import encode_labels


def main(words: Sequence[str] | None = None) -> None:
    """Encode a label a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path, help="A label a line.")
    parser.add_argument("out", type=Path, help="The .npz file to write.")
    parser.add_argument("--encoder", default="glove-50")
    parser.add_argument("--template", action="append", help="A prompt with {}; several are averaged.")
    arguments = parser.parse_args(words)
    labels = [line.strip() for line in arguments.labels.read_text(encoding="utf-8").splitlines() if line.strip()]
    templates = arguments.template or ["{}"]
    vectors = encode_labels(labels, arguments.encoder, templates=templates, normalise=False)
    np.savez(arguments.out, names=np.array(labels), vectors=vectors.float().numpy())


if __name__ == "__main__":
    main()
