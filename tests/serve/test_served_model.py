"""A copy of the model: what it says is what ``predict`` says."""

import asyncio
import io
from pathlib import Path

import pytest
from torch import Tensor

from mldecoder.predict import Predictor
from mldecoder.serve import Settings
from mldecoder.serve.model import ServedModel, pixels_of
from tests.predict.pictures import scene, tiny

__all__ = ["png"]


def png(i: int) -> bytes:
    file = io.BytesIO()
    scene(i).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    tiny().save_pretrained(folder)
    return folder


def test_pictures_scored_together_get_the_answers_of_predict(run: Path) -> None:
    served = ServedModel(Settings(str(run), threshold=0.3, top_k=5))
    pictures = [asyncio.run(served.prepared(png(i))) for i in range(5)]
    scores = asyncio.run(served.scored([one for one in pictures if isinstance(one, Tensor)]))
    wanted = Predictor(served.predictor.model, threshold=0.3, top_k=5)([png(i) for i in range(5)])
    for one, want in zip(scores, wanted, strict=True):
        answer, right = served.answer(one, all_scores=True), want.to_dict(all_scores=True)
        assert "path" not in answer
        assert [tag["label"] for tag in answer["tags"]] == [tag["label"] for tag in right["tags"]]
        assert answer["scores"] == pytest.approx(right["scores"], abs=2e-6)
    assert "scores" not in served.answer(scores[0], all_scores=False)


def test_what_is_no_picture_or_too_large_is_told(run: Path) -> None:
    served = ServedModel(Settings(str(run), max_pixels=64 * 64))
    assert isinstance(asyncio.run(served.prepared(png(0))), Tensor)
    large = io.BytesIO()
    scene(0).resize((65, 64)).save(large, "PNG")
    assert asyncio.run(served.prepared(large.getvalue())) == {
        "status": 413,
        "error": "The picture must have at most 4,096 pixels, got 4,160.",
    }
    for content, reason in ((b"", "zero bytes"), (b"junk", "not a picture"), (png(0)[:200], "truncated")):
        told = asyncio.run(served.prepared(content))
        assert isinstance(told, dict)
        assert told["status"] == 422
        assert reason in told["error"]
    assert pixels_of(b"junk") == 0
