"""Training by words: what varies in a step, what is measured, and whole small runs."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import mldecoder as mld
from mldecoder.cli.eval import evaluate
from mldecoder.config import TextConfig
from mldecoder.data import scenes
from mldecoder.errors import ConfigError
from mldecoder.heads import ZeroShotMLDecoder
from mldecoder.model import join
from mldecoder.recipes.recipe import OptimiserSettings, ZeroShotSettings
from mldecoder.training.optim import parameter_groups
from mldecoder.training.scoring import main_metric
from mldecoder.training.word_scoring import by_lists, word_figures
from mldecoder.training.zero_shot import WordTraining, cutout, mixed_queries, noisy, random_queries
from tests.words import spell

HEAD = {"kind": "zero-shot", "width": 16, "ff_width": 16, "heads": 2}
LABELS = ("red circle", "red star", "blue circle", "blue star", "green ring", "green star", "red ring")
UNSEEN = ("blue star", "red ring")
TINY = [
    "data.options.count=60",
    "image.size=32",
    "head.width=16",
    "head.ff_width=16",
    "training.epochs=2",
    "training.batch_size=20",
]


def model_of(unseen: tuple[str, ...] = UNSEEN, **head: object) -> mld.Classifier:
    base = mld.create_model("test_resnet", labels=LABELS, head="gap")
    return join(base.backbone, base.config.backbone, HEAD | head, LABELS, text=spell, unseen=unseen)


def step(words: WordTraining, batch: int = 3) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    targets = torch.randint(-1, 2, (batch, len(words.model.seen))).to(torch.int8)
    return words(torch.randn(batch, 3, 32, 32), targets)  # type: ignore[no-any-return]


def test_without_augmentations_a_step_asks_for_the_seen_labels_alone() -> None:
    model = model_of().eval()
    words = WordTraining(model, ZeroShotSettings())
    images, targets = torch.randn(2, 3, 32, 32), torch.ones(2, 5)
    logits, wanted = words(images, targets)
    assert wanted is targets
    torch.testing.assert_close(logits, model(images)[:, [LABELS.index(label) for label in model.seen]])


def test_the_vectors_of_unseen_labels_do_not_enter_training() -> None:
    settings = ZeroShotSettings(noise=0.3, random_queries=0.5, cutout=0.2, mix=0.5)
    model = model_of()
    words = WordTraining(model, settings)
    before = step(words)[0]
    assert model.words is not None
    with torch.no_grad():
        model.words.vectors[[LABELS.index(label) for label in UNSEEN]] = 1e6
    torch.testing.assert_close(step(words)[0], before)


@given(random=st.sampled_from([0.0, 0.3, 1.0]), mix=st.sampled_from([0.0, 0.5]), reading=st.sampled_from("cen"))
def test_every_reading_of_random_query_has_its_targets(random: float, mix: float, reading: str) -> None:
    name = {"c": "class", "e": "extra", "n": "negatives"}[reading]
    words = WordTraining(model_of(), ZeroShotSettings(random_queries=random, random_reading=name, mix=mix))  # type: ignore[arg-type]
    logits, wanted = step(words)
    labels, mixed, strangers = 5, -(-5 * mix // 1), -(-5 * random // 1)
    assert logits.shape == wanted.shape
    if name == "extra" and random:
        queries = int(labels + mixed + strangers)
        assert logits.shape[1] == labels + mixed + queries  # a label, and for every query: is it random?
        told = wanted[:, -queries:]
        assert (told[:, : int(labels + mixed)] == 0).all()
        assert (told[:, int(labels + mixed) :] == 1).all()
    else:
        assert logits.shape[1] == labels + mixed + strangers
        assert (wanted[:, int(labels + mixed) :] == (0 if name == "negatives" else 1)).all()


def test_the_answer_to_random_queries_is_trained_but_not_saved() -> None:
    words = WordTraining(model_of(), ZeroShotSettings(random_queries=0.5))
    logits, wanted = step(words)
    (logits * (wanted >= 0)).sum().backward()
    assert words.says_random is not None
    assert words.says_random.weight.grad is not None
    assert not [key for key in words.model.state_dict() if "random" in key]


def test_groups_meet_other_company_in_every_step_where_text_reads_them() -> None:
    words = WordTraining(model_of(group_size=2, readout="text"), ZeroShotSettings())
    assert words.shuffle
    first, second = (step_targets(words, seed) for seed in (1, 2))
    assert not torch.equal(first, second)
    assert torch.equal(first.sort(dim=1).values, second.sort(dim=1).values)
    assert not WordTraining(model_of(group_size=2, readout="learnable"), ZeroShotSettings()).shuffle
    assert not WordTraining(model_of(), ZeroShotSettings()).shuffle


def step_targets(words: WordTraining, seed: int) -> Tensor:
    torch.manual_seed(seed)
    return words(torch.zeros(2, 3, 32, 32), torch.arange(5.0).expand(2, -1))[1]  # type: ignore[no-any-return]


def test_a_separate_random_output_needs_a_query_for_each_label() -> None:
    model = model_of(group_size=2, readout="text")
    with pytest.raises(ConfigError, match="random_reading=extra needs a query of its own"):
        WordTraining(model, ZeroShotSettings(random_queries=0.5))
    WordTraining(model, ZeroShotSettings(random_queries=0.5, random_reading="class"))


def test_further_queries_are_refused_where_one_label_is_right() -> None:
    model = model_of(())
    model.config = model.config.model_copy(update={"task": "single-label"})
    with pytest.raises(ConfigError, match="are for pictures with several labels"):
        WordTraining(model, ZeroShotSettings(mix=0.5))


def test_a_step_is_a_function_of_the_generator_alone() -> None:
    words = WordTraining(model_of(), ZeroShotSettings(noise=0.5, random_queries=0.4, cutout=0.3, mix=1.0)).train()
    first, again = step(words), step(words)
    torch.testing.assert_close(first, again, rtol=0, atol=0)


def test_noise_follows_the_spread_of_the_labels() -> None:
    vectors = torch.tensor([[0.0, 1.0], [0.0, -1.0]]).repeat(5000, 1)
    added = noisy(vectors, 0.5, spread_of=vectors) - vectors
    torch.testing.assert_close(added.std(dim=0), torch.tensor([0.0, 0.5]), rtol=0, atol=0.02)
    unit = noisy(vectors, 0.5) - vectors
    torch.testing.assert_close(unit.std(dim=0), torch.tensor([0.5, 0.5]), rtol=0, atol=0.02)


def test_cutout_zeroes_about_its_share() -> None:
    cut = cutout(torch.ones(100, 100), 0.3)
    assert float((cut == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    assert set(cut.unique().tolist()) == {0.0, 1.0}


def test_random_queries_look_like_words_but_are_none() -> None:
    vectors = torch.randn(4000, 3) * torch.tensor([1.0, 2.0, 0.0]) + 5
    made = random_queries(vectors, 4000)
    torch.testing.assert_close(made.mean(dim=0), vectors.mean(dim=0), rtol=0, atol=0.2)
    torch.testing.assert_close(made.std(dim=0), vectors.std(dim=0), rtol=0, atol=0.2)


@given(labels=st.integers(2, 6), count=st.integers(1, 7), maximum=st.booleans())
def test_mixed_queries_lie_between_two_labels_and_so_do_their_targets(labels: int, count: int, maximum: bool) -> None:
    vectors = torch.eye(labels)
    targets = torch.randint(-1, 2, (4, labels))
    between, mixed = mixed_queries(vectors, targets, count, 1.0, maximum=maximum)
    for query, wanted in zip(between, mixed.T, strict=True):
        pair = query.nonzero().flatten()  # the shares can be read off one-hot vectors
        assert float(query.sum()) == pytest.approx(1.0, abs=1e-5)
        for picture, value in zip(targets.float(), wanted, strict=True):
            own = picture[pair]
            if (own < 0).any():
                assert value == -1
            elif len(pair) == 2:
                slow = own.max() if maximum else (own * query[pair]).sum()
                assert float(value) == pytest.approx(float(slow), abs=1e-5)


def test_the_text_projection_has_its_own_learning_rate() -> None:
    model = model_of(readout="text")
    groups = {str(g["name"]): g for g in parameter_groups(model, OptimiserSettings(lr=1.0, text_factor=0.1))}
    assert groups["text weights"]["lr"] == pytest.approx(0.1)
    assert len(groups["text weights"]["params"]) == 2  # type: ignore[arg-type]  # W_a and W_b
    assert groups["head weights"]["lr"] == 1.0
    count = sum(len(group["params"]) for group in groups.values())  # type: ignore[misc,arg-type]
    assert count == len(list(model.parameters()))


# Figures


def slow_at_k(scores: Tensor, targets: Tensor, k: int) -> tuple[float, float]:
    """Hits over K a picture and over positives, picture by picture."""
    hits = given_ = positives = 0
    for row, wanted in zip(scores.tolist(), targets.tolist(), strict=True):
        best = sorted(range(len(row)), key=lambda j: -row[j])[:k]
        hits += sum(wanted[j] == 1 for j in best)
        given_ += len(best)
        positives += sum(value == 1 for value in wanted)
    return 100 * hits / given_, 100 * hits / positives


def test_figures_are_of_the_seen_the_unseen_and_all_labels() -> None:
    model = model_of()
    logits, targets = torch.randn(30, 7), torch.randint(0, 2, (30, 7))
    targets[:5, [3, 6]] = 0  # pictures without an unseen label count all the same
    found = word_figures(model, logits, targets, 0.5)
    columns = {"": list(range(7)), "seen_": [0, 1, 2, 4, 5], "unseen_": [3, 6]}
    for prefix, own in columns.items():
        plain = mld.metrics.mean_average_precision(logits[:, own], targets[:, own]).value
        assert found[f"{prefix}mAP"] == pytest.approx(100 * plain)
        for k in (3, 5):
            precision, recall = slow_at_k(logits[:, own], targets[:, own], k)
            assert found[f"{prefix}P@{k}"] == pytest.approx(precision)
            assert found[f"{prefix}R@{k}"] == pytest.approx(recall)
            assert found[f"{prefix}F1@{k}"] == pytest.approx(2 * precision * recall / (precision + recall))


def test_a_list_without_a_positive_has_no_figures() -> None:
    targets = torch.ones(4, 7, dtype=torch.long)
    targets[:, [3, 6]] = 0
    found = word_figures(model_of(), torch.randn(4, 7), targets, 0.5)
    assert not [name for name in found if name.startswith("unseen")]
    assert found["seen_mAP"] == 100


def test_in_groups_each_list_is_scored_by_itself() -> None:
    model = model_of(group_size=2, readout="text").eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        logits = by_lists(model)(images)
        assert logits.shape == (2, 7 + 5 + 2)
        torch.testing.assert_close(logits[:, :7], model(images))
        torch.testing.assert_close(logits[:, 7:12], model(images, model.text_vectors_for(model.seen)))
        torch.testing.assert_close(logits[:, 12:], model(images, model.text_vectors_for(model.unseen)))
    assert by_lists(model_of()) is not None
    full = model_of()
    assert by_lists(full) is full


def test_weights_are_never_chosen_by_unseen_labels() -> None:
    assert main_metric("multi-label") == "mAP"
    assert main_metric("multi-label", UNSEEN) == "seen_mAP"


# Whole runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "words"
    settings = ["zero_shot.noise=0.3", "zero_shot.random_queries=0.2", "training.checkpoint_steps=2"]
    mld.train("scenes", recipe="scenes-zsl", output=folder, overrides=[*TINY, *settings], quiet=True)
    return folder


def test_a_run_holds_out_labels_and_measures_them(finished: Path) -> None:
    model = mld.load(finished)
    assert model.labels == (*scenes.SEEN, *scenes.UNSEEN)
    assert model.unseen == scenes.UNSEEN
    assert model.config.text is not None
    assert model.config.text.encoder == "glove-50"
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert {"seen_mAP", "unseen_mAP", "mAP", "unseen_F1@3", "F1@5", "ema_unseen_mAP"} <= set(rows[-1])
    metrics = json.loads((finished / "metrics.json").read_text())
    best = max(max(row["seen_mAP"], row["ema_seen_mAP"]) for row in rows)
    assert metrics["seen_mAP"] == pytest.approx(best)
    page = (finished / "report.html").read_text()
    assert "unseen (ZSL)" in page
    assert "Trained" in page


def test_eval_tells_the_same(finished: Path) -> None:
    metrics = json.loads((finished / "metrics.json").read_text())
    found = mld.evaluate(finished)
    for name in ("seen_mAP", "unseen_mAP", "mAP", "unseen_F1@3", "F1@5"):
        assert found[name] == pytest.approx(metrics[name], abs=1e-6)


def test_a_run_that_stopped_goes_on_to_the_same_weights(finished: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from mldecoder.training.loop import Trainer

    folder = tmp_path / "stopped"
    settings = ["zero_shot.noise=0.3", "zero_shot.random_queries=0.2", "training.checkpoint_steps=2"]
    whole, calls = Trainer._step, []

    def stops(self: Trainer, number: int) -> object:
        calls.append(number)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return whole(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_step", stops)
        with pytest.raises(KeyboardInterrupt):
            mld.train("scenes", recipe="scenes-zsl", output=folder, overrides=[*TINY, *settings], quiet=True)
    mld.train(output=folder, resume=True, quiet=True)
    for part in ("last", "ema"):
        expected = load_file(finished / part / "model.safetensors")
        for key, value in load_file(folder / part / "model.safetensors").items():
            assert torch.equal(value, expected[key]), f"{part}: {key}"


def test_the_split_is_kept_by_name_so_that_its_file_may_go(tmp_path: Path) -> None:
    file = tmp_path / "unseen.txt"
    file.write_text("red circle\nblue star\n")
    words = [*TINY, "training.epochs=1", f"data.unseen={file}", "data.leave_out=[green ring]", "head.group_size=4"]
    run_ = mld.train("scenes", recipe="scenes-zsl", output=tmp_path / "run", overrides=words, quiet=True)
    file.unlink()
    model = run_.model()
    assert isinstance(model.head, ZeroShotMLDecoder)
    assert model.head.group_size == 4
    assert model.unseen == ("red circle", "blue star")
    assert len(model.labels) == 35
    assert "green ring" not in model.labels
    assert mld.evaluate(tmp_path / "run")["seen_mAP"] == pytest.approx(run_.metrics["seen_mAP"], abs=1e-6)


def test_a_zero_shot_model_is_measured_on_labels_it_never_had(finished: Path) -> None:
    model = mld.load(finished)
    model.set_labels(scenes.SEEN[:20])
    found = mld.evaluate(model, "scenes", overrides=["data.options.count=60", "training.batch_size=20"])
    assert {"seen_mAP", "mAP"} <= set(found)
    assert model.labels == scenes.SEEN[:20]


def test_the_command_line_prints_all_lists(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(finished)
    printed = capsys.readouterr().out
    assert "unseen (ZSL)" in printed
    assert "unseen_mAP" not in printed  # it stands beside the mAP of all labels
    evaluate(finished, json=True)
    assert "unseen_mAP" in json.loads(capsys.readouterr().out)


def test_one_batch_of_words_can_be_learnt_by_heart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mldecoder.training.api import overfit_batch

    overfit_batch("scenes", recipe="scenes-zsl", overrides=["data.options.count=20", "image.size=32", *TINY[2:]])
    assert "27 labels are trained" in capsys.readouterr().out


def test_text_settings_are_saved_with_the_run(tmp_path: Path) -> None:
    words = [*TINY, "training.epochs=1", "text.scaling=standard", "text.templates=['a {}']"]
    made = mld.train("scenes", recipe="scenes-zsl", output=tmp_path / "run", overrides=words, quiet=True)
    assert made.model().config.text == TextConfig(scaling="standard", templates=("a {}",))
    shutil.rmtree(made.path)
