"""A classifier that asks by words: labels come and go without training, and a saved one needs no encoder."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch

import mldecoder as mld
from mldecoder.config import TextConfig
from mldecoder.errors import ConfigError, InputError
from mldecoder.heads import ZeroShotMLDecoder
from mldecoder.label_words import LabelWords, TextScaling
from tests.words import WIDTH, spell

SMALL = {"kind": "zero-shot", "width": 16, "ff_width": 16, "heads": 2}
LABELS = ["red circle", "red star", "blue circle"]


def tiny(**options: object) -> mld.Classifier:
    arguments = {"labels": LABELS, "head": SMALL, "text": spell} | options
    return mld.create_model("test_resnet", **arguments).eval()  # type: ignore[arg-type]


def calibrated(model: mld.Classifier, *thresholds: float) -> mld.Classifier:
    model.config = model.config.model_copy(update={"thresholds": thresholds})
    return model


@pytest.fixture
def pictures() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32)


def test_a_model_scores_its_labels_or_any_vectors(pictures: torch.Tensor) -> None:
    model = tiny()
    assert model.zero_shot
    assert model(pictures).shape == (2, 3)
    torch.testing.assert_close(model(pictures, model.text_vectors_for(["red star"])), model(pictures)[:, 1:2])
    with pytest.raises(InputError, match="for zero-shot models, this one is gap"):
        tiny(head="gap", text=None)(pictures, torch.zeros(1, WIDTH))


def test_a_saved_model_needs_no_encoder_for_its_own_labels(tmp_path: Path, pictures: torch.Tensor) -> None:
    model = tiny()
    model.save_pretrained(tmp_path)
    again = mld.load(tmp_path)
    assert again.config.text is not None
    assert again.config.text.encoder == "function:tests.words.spell"
    assert again.labels == tuple(LABELS)
    with torch.no_grad():
        torch.testing.assert_close(again(pictures), model(pictures), rtol=0, atol=0)
    torch.testing.assert_close(again.text_vectors_for(["red star"]), model.text_vectors_for(["red star"]))
    with pytest.raises(ConfigError, match="was a function of the program that made the model"):
        again.text_vectors_for(["dog"])
    assert again.words is not None
    again.words.encoder = spell
    torch.testing.assert_close(again.text_vectors_for(["dog"]), model.text_vectors_for(["dog"]))


@pytest.mark.parametrize("scaling", ["standard", "whiten"])
def test_scaling_is_saved_and_used_for_further_words(tmp_path: Path, scaling: str) -> None:
    labels = [f"{colour} {shape}" for colour in ("red", "green", "blue") for shape in ("circle", "star", "ring")]
    model = tiny(labels=labels, text={"encoder": "glove-50", "scaling": scaling})
    model.save_pretrained(tmp_path)
    again = mld.load(tmp_path)
    torch.testing.assert_close(again.text_vectors_for(["yellow ring"]), model.text_vectors_for(["yellow ring"]))
    assert again.words is not None
    vectors = again.words.vectors
    torch.testing.assert_close(vectors.mean(dim=0), torch.zeros(50), rtol=0, atol=1e-5)
    assert float(vectors.square().mean()) == pytest.approx(1.0, abs=1e-4)


def test_whitening_gives_all_directions_in_which_labels_differ_the_same_spread() -> None:
    vectors = torch.randn(40, 3) * torch.tensor([5.0, 1.0, 0.1]) + 7
    scaled = TextScaling(3).fit(vectors, TextConfig(scaling="whiten", shrinkage=0.0))(vectors)
    torch.testing.assert_close(scaled.T @ scaled / 40, torch.eye(3), rtol=0, atol=1e-3)
    standard = TextScaling(3).fit(vectors, TextConfig(scaling="standard", shrinkage=0.0))(vectors)
    torch.testing.assert_close(standard.std(dim=0, correction=0), torch.ones(3), rtol=0, atol=1e-3)


def test_unseen_labels_have_no_part_in_the_scaling() -> None:
    text = {"encoder": "glove-50", "scaling": "whiten"}
    labels = ["red circle", "red star", "blue circle", "blue star"]
    with_more = LabelWords.encoded([*labels, "green ring"], text, unseen=["green ring"])
    torch.testing.assert_close(with_more.vectors[:4], LabelWords.encoded(labels, text).vectors)


def test_labels_are_added_by_word_and_taken_out_again(pictures: torch.Tensor) -> None:
    model = tiny()
    before = model(pictures)
    model.add_labels(["blue star"])
    assert model.labels == (*LABELS, "blue star")
    assert set(model.unseen) == {"blue star"}
    assert model.seen == tuple(LABELS)
    after = model(pictures)
    torch.testing.assert_close(after[:, :3], before)
    torch.testing.assert_close(after[:, 3:], model(pictures, model.text_vectors_for(["blue star"])))
    model.remove_labels(["blue star"])
    torch.testing.assert_close(model(pictures), before)
    assert not model.unseen


def test_a_label_is_added_by_a_sentence() -> None:
    model = tiny()
    model.add_labels(["sun"], descriptions={"sun": "yellow circle"})
    torch.testing.assert_close(model.text_vectors_for(["sun"]), model.text_vectors_for(["yellow circle"]))
    assert model.config.text is not None
    assert model.config.text.descriptions == {"sun": ("yellow circle",)}
    model.set_labels(["sun", "moon"])
    torch.testing.assert_close(model.text_vectors_for(["sun"]), model.text_vectors_for(["yellow circle"]))
    model.set_labels(["moon"])
    assert model.config.text.descriptions == {}
    with pytest.raises(ConfigError, match="must be of labels given, got 'sun'"):
        model.set_labels(["moon"], descriptions={"sun": "yellow circle"})


def test_a_label_is_added_by_five_pictures_without_training(tmp_path: Path) -> None:
    model = tiny()
    state = {key: value.clone() for key, value in model.head.state_dict().items()}
    shown = torch.randn(5, 3, 32, 32)
    model.add_labels(["thing"], pictures={"thing": shown})
    assert model(shown).shape == (5, 4)
    assert all(torch.equal(value, state[key]) for key, value in model.head.state_dict().items())
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(mld.load(tmp_path)(shown), model(shown))
    model.remove_labels(["thing"])
    assert model.labels == tuple(LABELS)


def test_any_words_have_vectors_in_the_order_asked_for() -> None:
    model = tiny()
    words = ["dog", "red star", "cat", "dog"]
    vectors = model.text_vectors_for(words)
    for word, vector in zip(words, vectors, strict=True):
        torch.testing.assert_close(model.text_vectors_for([word])[0], vector)
    assert model.text_vectors_for([]).shape == (0, WIDTH)
    with pytest.raises(ConfigError, match="Any words can be scored by zero-shot models, this one is gap"):
        tiny(head="gap", text=None).text_vectors_for(["dog"])


def test_a_threshold_is_the_calibrated_one_or_a_half_or_that_of_the_neighbours() -> None:
    model = tiny()
    assert model.thresholds_for(["red star", "dog"]).tolist() == [0.5, 0.5]
    assert calibrated(deepcopy(model), 0.2, 0.4, 0.9).thresholds_for(["blue circle", "red star"]).tolist() == (
        pytest.approx([0.9, 0.4])
    )
    (between,) = calibrated(deepcopy(model), 0.2, 0.4, 0.9).thresholds_for(["blue star"]).tolist()
    assert 0.2 < between < 0.9
    model.config = model.config.model_copy(update={"thresholds": 0.3})
    assert model.thresholds_for(["red star", "dog"]).tolist() == pytest.approx([0.3, 0.3])
    closed = tiny(head="gap", text=None)
    with pytest.raises(ConfigError, match="The model has no label 'dog'"):
        closed.thresholds_for(["dog"])


def test_an_added_label_gets_its_neighbours_threshold_and_the_others_keep_theirs() -> None:
    model = calibrated(tiny(), 0.2, 0.4, 0.9)
    (expected,) = model.thresholds_for(["blue star"]).tolist()
    model.add_labels(["blue star"])
    assert model.thresholds_for(model.labels).tolist() == pytest.approx([0.2, 0.4, 0.9, expected])
    model.set_labels(["blue circle", "green ring"])
    assert model.thresholds_for(["blue circle"]).tolist() == pytest.approx([0.9])


def test_groups_and_their_options_come_back_from_disk(tmp_path: Path, pictures: torch.Tensor) -> None:
    for i, (query, readout) in enumerate([("text", "text"), ("learnable", "text"), ("text", "learnable")]):
        model = tiny(head=SMALL | {"group_size": 2, "query": query, "readout": readout})
        model.save_pretrained(tmp_path / str(i))
        torch.testing.assert_close(mld.load(tmp_path / str(i))(pictures), model(pictures))
        assert isinstance(model.head, ZeroShotMLDecoder)
        assert model.head.num_groups == (None if "learnable" not in (query, readout) else 2)


def test_a_fresh_head_for_other_labels_keeps_the_encoder(pictures: torch.Tensor) -> None:
    model = tiny()
    model.reset_classifier(["dog", "cat"])
    assert model.zero_shot
    assert model(pictures).shape == (2, 2)
    model.reset_classifier(["dog", "cat"], head="gap")
    assert (model.words, model.config.text) == (None, None)


def test_words_and_head_must_fit_together() -> None:
    with pytest.raises(ConfigError, match=r"takes text vectors of 300 numbers, function:.* gives 8"):
        tiny(head=SMALL | {"text_width": 300})
    with pytest.raises(ConfigError, match="text is for the zero-shot head"):
        tiny(head="gap")
    with pytest.raises(ConfigError, match="Labels by sentences or pictures are for zero-shot models"):
        tiny(head="gap", text=None).add_labels(["dog"], descriptions={"dog": "an animal"})
    with pytest.raises(ConfigError, match=r"text: unknown key 'encodr'. Did you mean 'encoder'"):
        tiny(text={"encodr": "glove-50"})


def test_a_head_that_is_a_module_can_ask_by_words(pictures: torch.Tensor) -> None:
    backbone = mld.create_model("test_resnet", 1, head="gap").backbone
    head = ZeroShotMLDecoder(backbone.num_features, WIDTH, width=16, ff_width=16, heads=2)
    assert tiny(head=head)(pictures).shape == (2, 3)


def test_neighbours_score_new_labels_and_leave_trained_ones_alone(pictures: torch.Tensor) -> None:
    model, plain = tiny(), tiny()
    plain.load_state_dict(model.state_dict())
    model.ask_neighbours(share=0.5, temperature=0.1)
    asked = ["blue circle", "blue star", "red circle"]
    vectors = plain.text_vectors_for(asked)
    with torch.no_grad():
        torch.testing.assert_close(model(pictures), plain(pictures))
        before, after = plain(pictures, vectors), model(pictures, vectors)
        torch.testing.assert_close(after[:, [0, 2]], before[:, [0, 2]])
        assert not torch.allclose(after[:, 1], before[:, 1])
        turned = model(pictures, vectors.flip(0))  # neither order nor company matters
        torch.testing.assert_close(turned.flip(1), after)
        torch.testing.assert_close(model(pictures, vectors[1:2]), after[:, 1:2])
        model.ask_neighbours(share=0.0)
        torch.testing.assert_close(model(pictures, vectors), before)


def test_neighbours_are_saved_and_stay_when_labels_go(tmp_path: Path, pictures: torch.Tensor) -> None:
    model = tiny()
    model.ask_neighbours()
    vectors = model.text_vectors_for(["blue star"])
    with torch.no_grad():
        before = model(pictures, vectors)
        model.remove_labels(["red star"])
        model.add_labels(["green ring"])
        model.save_pretrained(tmp_path)
        again = mld.load(tmp_path)
        assert again.config.text is not None
        assert again.config.text.neighbours == 0.7
        torch.testing.assert_close(again(pictures, vectors), before)


def test_neighbours_have_no_part_in_training(pictures: torch.Tensor) -> None:
    model = tiny(head={**SMALL, "dropout": 0.0})
    model.ask_neighbours()
    vectors = model.text_vectors_for(["blue star"])
    asked = model(pictures, vectors)
    for module in model.modules():  # batch norm stays as it is
        module.training = False
    model.training = True
    assert not torch.allclose(model(pictures, vectors), asked)
    torch.testing.assert_close(model(pictures, vectors), model.head(model.backbone(pictures), vectors))


def test_neighbours_must_be_a_share() -> None:
    with pytest.raises(ConfigError, match=r"neighbours.*less than or equal to 1"):
        tiny().ask_neighbours(share=2.0)
