import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from mldecoder.data.dataset import Files, ImageSet, Targets
from mldecoder.errors import ConfigError, DataError
from mldecoder.predict import Predictor, Source
from mldecoder.predict.ahead import in_order
from mldecoder.training.scoring import score
from tests.data.odd_files import BROKEN, ODD
from tests.predict.pictures import scene, tiny, write_scenes, zero_shot


@pytest.mark.parametrize(("resize", "task"), [("squash", "multi-label"), ("crop", "single-label")])
def test_predict_gives_the_probabilities_of_evaluation(tmp_path: Path, resize: str, task: str) -> None:
    for name, data in ODD.items():
        if name != "giant.jpg":  # slow to decode
            (tmp_path / name).write_bytes(data)
    write_scenes(tmp_path, 8)
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    model = tiny(task=task)
    wish = model.config.preprocessing.model_copy(update={"resize": resize, "crop_pct": 0.9})
    model.config = model.config.model_copy(update={"preprocessing": wish})
    image_set = ImageSet(Files(tmp_path, names), Targets.from_lists([[]] * len(names), num_classes=36), model.labels)
    accelerator = Accelerator(cpu=True)
    scores = score(model, image_set, wish, accelerator, batch_size=7, workers=0, max_broken=0)
    expected = scores.probabilities(model.config.task).double().numpy()
    predictions = Predictor(model, batch_size=7)([tmp_path / name for name in names])
    assert [one.name for one in predictions] == [str(tmp_path / name) for name in names]
    np.testing.assert_allclose(np.stack([one.scores for one in predictions]), expected, rtol=0, atol=1e-6)


def test_tags_are_the_labels_that_reach_their_threshold_best_first() -> None:
    model = tiny(labels=("a", "b", "c", "d"))
    predictor = Predictor(model, threshold=0.5)
    scores = np.array([0.5, 0.9, 0.49, 0.7])
    assert [tag.label for tag in predictor.tag("x", scores).tags] == ["b", "d", "a"]
    assert [tag.label for tag in Predictor(model, threshold=0.5, top_k=2).tag("x", scores).tags] == ["b", "d"]
    assert Predictor(model, threshold=0.95).tag("x", scores).tags == ()


def test_stored_thresholds_are_used_unless_told_otherwise() -> None:
    model = tiny(labels=("a", "b", "c"))
    assert Predictor(model).thresholds.tolist() == [0.5] * 3
    model.config = model.config.model_copy(update={"global_threshold": 0.3})
    assert Predictor(model, threshold="auto").thresholds.tolist() == [0.3] * 3
    model.config = model.config.model_copy(update={"thresholds": (0.1, 0.2, 0.7)})
    assert Predictor(model).thresholds.tolist() == [0.1, 0.2, 0.7]
    assert Predictor(model, labels=["c", "a"]).thresholds.tolist() == [0.7, 0.1]
    assert Predictor(model, threshold=0.25).thresholds.tolist() == [0.25] * 3


def test_temperature_and_bias_shape_the_scores() -> None:
    model = tiny()
    raw = model.predict(scene(0))[0].scores
    model.config = model.config.model_copy(update={"temperature": 0.5, "bias": -1.0})
    logits = np.log(raw / (1 - raw))
    np.testing.assert_allclose(model.predict(scene(0))[0].scores, 1 / (1 + np.exp(1 - 2 * logits)), atol=1e-6)


def test_a_single_label_model_gives_its_best_class_and_a_softmax_over_all() -> None:
    model = tiny(labels=("a", "b", "c"), task="single-label")
    (one,) = model.predict(scene(0))
    assert [tag.label for tag in one.tags] == [one.labels[int(one.scores.argmax())]]
    assert one.scores.sum() == pytest.approx(1)
    assert len(model.predict(scene(0), top_k=3)[0].tags) == 3
    assert model.predict(scene(0), threshold=1.0)[0].tags == ()
    (part,) = model.predict(scene(0), labels=["c", "a"], top_k=2)
    assert part.scores.tolist() == [one.score("c"), one.score("a")]


def test_labels_pick_among_the_models_own_and_a_typo_names_the_nearest() -> None:
    model = tiny()
    (every,) = model.predict(scene(0))
    (some,) = model.predict(scene(0), labels=["red ring", "blue star"], threshold=0.0)
    assert some.labels == ("red ring", "blue star")
    assert some.scores.tolist() == [every.score("red ring"), every.score("blue star")]
    with pytest.raises(ConfigError, match=r"no label 'red rng'. Did you mean 'red ring'"):
        model.predict(scene(0), labels=["red rng"])
    with pytest.raises(ConfigError, match=r"no label '€'. It has 36"):
        model.predict(scene(0), labels=["€"])
    with pytest.raises(ConfigError, match="list of different names"):
        model.predict(scene(0), labels=["red ring", "red ring"])
    with pytest.raises(ConfigError, match="list of different names"):
        model.predict(scene(0), labels="red ring")


@pytest.mark.parametrize(("option", "value"), [("top_k", 0), ("batch_size", 0), ("threshold", 1.5), ("workers", 0)])
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{option} must be .*got {value}"):
        Predictor(tiny(), **{option: value})  # type: ignore[arg-type]


def test_a_broken_picture_in_a_list_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_text("this is no picture")
    with pytest.raises(DataError, match=r"bad.jpg: not a picture in a known format. Mend it or leave it out"):
        tiny().predict([scene(0), bad])
    with pytest.raises(DataError, match=r"gone.jpg: the file is missing"):
        tiny().predict(tmp_path / "gone.jpg")


def test_every_kind_of_broken_file_comes_with_its_reason_and_the_others_are_tagged(tmp_path: Path) -> None:
    pictures = []
    for name, (data, _) in BROKEN.items():
        (tmp_path / name).write_bytes(data)
        pictures += [Source(name, tmp_path / name), Source("whole", scene(1))]
    made = list(Predictor(tiny(), batch_size=4).stream(pictures))
    assert [one.name for one in made] == [source.name for source in pictures]
    assert [one.error is None for one in made] == [source.name == "whole" for source in pictures]
    assert len({tuple(one.scores.round(6)) for one in made if one.error is None}) == 1


def test_a_prediction_becomes_plain_values() -> None:
    (one,) = tiny(labels=("a", "b")).predict(scene(0), threshold=0.0)
    plain = json.loads(json.dumps(one.to_dict(all_scores=True)))
    assert plain["path"] == "picture 0"
    assert [tag["label"] for tag in plain["tags"]] == [tag.label for tag in one.tags]
    assert plain["scores"] == {label: round(one.score(label), 6) for label in ("a", "b")}
    assert str(one).startswith("picture 0: ")


def test_a_model_in_training_mode_is_put_back_and_gives_the_same() -> None:
    model = tiny()
    expected = model.predict(scene(0))[0].scores
    model.train()
    assert model.predict(scene(0))[0].scores.tolist() == expected.tolist()
    assert model.training


def test_a_model_in_half_precision_predicts() -> None:
    half = tiny().bfloat16()
    np.testing.assert_allclose(half.predict(scene(0))[0].scores, tiny().predict(scene(0))[0].scores, atol=0.05)


def test_the_breakdown_has_every_step_and_the_same_answer() -> None:
    predictor = Predictor(tiny())
    one, seconds = predictor.timed(Source("x", scene(0)))
    assert list(seconds) == ["decode", "backbone", "head", "output"]
    assert all(took >= 0 for took in seconds.values())
    np.testing.assert_allclose(one.scores, predictor(scene(0))[0].scores, atol=1e-9)


def test_a_zero_shot_model_takes_any_words() -> None:
    model = zero_shot()
    words = ["orange ring", "red square", "blue star"]  # the first one is new
    (one,) = model.predict(scene(0), labels=words, threshold=0.0)
    assert one.labels == tuple(words)
    with torch.no_grad():
        images = Predictor(model).normalised(Predictor(model).prepare(Source("x", scene(0)))[None])
        expected = model(images, model.text_vectors_for(words)).double().sigmoid()[0]
    np.testing.assert_allclose(one.scores, expected.numpy(), atol=1e-6)
    own = model.predict(scene(0))[0]
    assert own.labels == model.labels
    predictor = Predictor(model)
    np.testing.assert_allclose(predictor.timed(Source("x", scene(0)))[0].scores, own.scores, atol=1e-6)


def test_new_words_take_their_thresholds_from_the_model() -> None:
    model = zero_shot()
    model.config = model.config.model_copy(update={"thresholds": (0.2, 0.4, 0.6)})
    made = Predictor(model, labels=["blue star", "orange ring"]).thresholds
    assert made[0] == 0.6
    assert made[1] == pytest.approx(float(model.thresholds_for(["orange ring"])))


def test_work_ahead_keeps_its_order_and_its_bound() -> None:
    taken = 0
    lock = threading.Lock()

    def items() -> Iterator[int]:
        nonlocal taken
        for i in range(200):
            with lock:
                taken += 1
            yield i

    def slow(i: int) -> int:
        time.sleep(0.001 * (i % 3))
        return i

    for done, result in enumerate(in_order(slow, items(), workers=4, ahead=10)):
        assert result == done
        assert taken <= done + 15


def test_an_error_in_the_work_stops_it() -> None:
    def fail(i: int) -> int:
        raise RuntimeError(f"at {i}")

    with pytest.raises(RuntimeError, match="at 0"):
        list(in_order(fail, range(100), workers=2, ahead=4))
