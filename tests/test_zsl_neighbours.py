"""The choice of neighbours: the table mixes saved logits as the model would."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tools.zsl_neighbours import dump, mixed, rows

import mldecoder as mld
from mldecoder.training import train
from tests.words import spell


def test_the_table_says_what_the_model_would(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    head = {"kind": "zero-shot", "width": 16, "ff_width": 16, "heads": 2}
    labels = ["red circle", "red star", "blue circle", "blue star"]
    model = mld.create_model("test_resnet", labels=labels, head=head, text=spell).eval()
    model.config = model.config.model_copy(update={"unseen": ("blue star",)})
    images, targets = torch.randn(12, 3, 32, 32), rng.integers(0, 2, (12, 4)).astype(np.int8)
    with torch.no_grad():
        logits = model(images)
        model.ask_neighbours(0.5, 0.1)
        asked = model(images)
    content = {
        "logits": logits.numpy(),
        "targets": targets,
        "vectors": model.text_vectors_for(labels).numpy(),
        "labels": np.array(labels),
        "unseen": np.array(model.unseen),
    }
    expected = mld.metrics.mean_average_precision(asked[:, 3:], torch.from_numpy(targets)[:, 3:]).value
    assert mixed(content, 0.5, 0.1) == pytest.approx(100 * expected)
    np.savez(tmp_path / "one.npz", **content)
    assert [line["run"] for line in rows(tmp_path)] == ["one"] * 4


@pytest.mark.slow
def test_logits_of_a_run_are_kept_with_their_words(tmp_path: Path) -> None:
    tiny = ["data.options.count=60", "image.size=32", "head.width=16", "head.ff_width=16", "training.epochs=1"]
    train("scenes", recipe="scenes-zsl", output=tmp_path / "runs" / "one", overrides=tiny, quiet=True)
    dump(tmp_path / "runs", "scenes", tmp_path / "logits")
    with np.load(tmp_path / "logits" / "one.npz") as content:
        assert content["logits"].shape == (2000, 36)
        assert content["vectors"].shape == (36, 50)
        assert len(content["unseen"]) == 9
