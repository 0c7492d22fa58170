"""Training with the head's group layer split over processes: the same weights, figures and folders as with a whole one.

Where not said otherwise the oracle is ordinary training in one process, from the same first weights.
"""

import shutil
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import mldecoder as mld
from mldecoder.data.detect import open_dataset
from mldecoder.errors import CheckpointError, ConfigError, TrainingError
from mldecoder.heads import MLDecoder
from mldecoder.heads.layers import GroupLinear
from mldecoder.heads.ranks import Ranks
from mldecoder.heads.split import split_head
from mldecoder.heads.split_training import split_parameters
from mldecoder.losses import build
from mldecoder.recipes import load_recipe
from mldecoder.training.api import _described
from mldecoder.training.build import build_model
from mldecoder.training.checks import check
from mldecoder.training.console import Display
from mldecoder.training.loading import Batch
from mldecoder.training.shares import Shares
from tests.training.same import (
    COMPARABLE,
    TINY,
    check_each_once,
    check_lives,
    check_same,
    kill_one,
    rows,
    together,
    weights,
)
from tests.training.together import Job, read_trace

SPLIT = "training.parallel=split"
QUERIES = "head.num_queries=5"  # of two processes one has 3 and one 2, of four the last has none
LABELS = open_dataset("scenes").labels
PLAIN = [*COMPARABLE, QUERIES, "training.clip_norm=18", "optimiser.lr=3.0e-3"]  # some steps are clipped, some not


def first_weights(folder: Path, *overrides: str) -> str:
    """A model folder to start from, and the words that say so."""
    recipe = load_recipe("scenes", [*overrides, "backbone.pretrained=false"])
    torch.manual_seed(1)
    build_model(recipe, LABELS, "multi-label", Display(enabled=False)).save_pretrained(folder)
    return f"backbone.init_from={folder}"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What all runs that are compared begin with; their own seed would deal out other groups."""
    return first_weights(tmp_path_factory.mktemp("start"), *PLAIN, "head.seed=3")


@pytest.fixture(scope="module")
def one(start: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process with the whole layer."""
    folder = tmp_path_factory.mktemp("one") / "run"
    mld.train(recipe="scenes", output=folder, overrides=[*PLAIN, start], quiet=True)
    before, after = (weights(path)["head.classify.weight"] for path in (Path(start.split("=")[1]), folder / "last"))
    assert (after - before).abs().max() > 1e-3  # what is compared, within a thousandth of that, has moved
    return folder


@pytest.fixture(scope="module")
def two(start: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes with a part of the layer each, and a copy of the run as it was in its second epoch."""
    root = tmp_path_factory.mktemp("two")
    together([Job(str(root / "run"), (*PLAIN, start, SPLIT), copy_at=8)], root, processes=2)
    return root


def test_two_processes_with_a_part_each_end_like_one_with_the_whole_layer(one: Path, two: Path) -> None:
    check_same(two / "run", one)
    check_each_once(read_trace(two / "run"))


def test_a_process_holds_its_queries_their_average_and_their_optimiser_state(two: Path) -> None:
    assert {(step.rank, step.held) for step in read_trace(two / "run")} == {(0, 3 / 5), (1, 2 / 5)}


def test_the_folder_is_an_ordinary_one(one: Path, two: Path) -> None:
    model, other = mld.load(two / "run"), mld.load(one)
    assert type(model.head.classify) is GroupLinear
    assert model.config.model_dump(exclude={"metrics"}) == other.config.model_dump(exclude={"metrics"})
    pictures = torch.randn(4, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(model(pictures), other(pictures))
    assert mld.evaluate(two / "run") == pytest.approx(mld.evaluate(one))


def test_what_two_processes_saved_one_resumes(one: Path, two: Path, tmp_path: Path) -> None:
    shutil.copytree(two / "run-copy", tmp_path / "run")
    assert len(rows(tmp_path / "run")) == 1
    mld.train(output=tmp_path / "run", resume=True, quiet=True)
    check_same(tmp_path / "run", one)


@pytest.mark.parametrize("other", ["ddp", "fsdp"])
def test_a_checkpoint_of_another_kind_is_not_passed_over(two: Path, tmp_path: Path, other: str) -> None:
    shutil.copytree(two / "run-copy", tmp_path / "run")
    settings = tmp_path / "run" / "run.yaml"
    settings.write_text(settings.read_text().replace("parallel: split", f"parallel: {other}"))
    with pytest.raises(CheckpointError, match="was not written with" if other == "ddp" else "cannot be read") as error:
        mld.train(output=tmp_path / "run", resume=True, quiet=True)
    assert "\n" not in str(error.value)


def test_one_process_may_train_it_too(start: str, one: Path, tmp_path: Path) -> None:
    mld.train(recipe="scenes", output=tmp_path / "run", overrides=[*PLAIN, start, SPLIT], quiet=True)
    check_same(tmp_path / "run", one)


def test_the_parameters_that_are_told_are_those_of_all_processes() -> None:
    model = mld.create_model("test_vit", num_classes=36, pretrained=False)
    said = _described(model)
    ranks = Ranks()
    ranks.rank, ranks.size = 1, 3
    split_head(cast(MLDecoder, model.head), ranks)
    assert sum(p.numel() for p in split_parameters(model)) < 12 * (768 + 1) + 1
    assert _described(model) == said


@pytest.mark.parametrize("words", [["head.num_queries=6"], ["head.kind=gap"], ["head.kind=ml-decoder+"]])
def test_another_head_to_start_from_leaves_this_one_fresh(words: list[str], tmp_path: Path) -> None:
    start = first_weights(tmp_path / "first", *(word for word in COMPARABLE if not word.startswith("head.")), *words)
    recipe, said = load_recipe("scenes", [*PLAIN, start, SPLIT]), StringIO()
    build_model(recipe, LABELS, "multi-label", Display(console=Console(file=said, soft_wrap=True)))
    assert "the head starts fresh" in said.getvalue()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["training.precision=fp16"], "split does not go with training.precision=fp16.*bf16"),
        (["training.compile=true"], "split does not go with training.compile=true"),
        (["training.grouped_loss=false"], "has the grouped loss"),
        (["head.kind=ml-decoder+"], r"head\.kind=ml-decoder, got ml-decoder\+"),
        (["head.kind=zero-shot"], "head.kind=ml-decoder, got zero-shot"),
        (["head.kind=gap"], "head.kind=ml-decoder, got gap"),
        (["head.queries=text"], "got text and random"),
        (["head.groups=semantic"], "got fixed and semantic"),
        (["training.parallel=split,fsdp"], "'ddp', 'fsdp' or 'split'"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_is_written(
    words: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        mld.train(recipe="scenes", output=tmp_path / "run", overrides=[SPLIT, *words])
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_loss_over_all_labels_at_once_is_refused() -> None:
    recipe = load_recipe("scenes", [SPLIT, "loss.kind=auto"])
    some = open_dataset("scenes", options=recipe.data.options | {"count": 10}).train
    check(some, some, recipe, "multi-label")
    with pytest.raises(TrainingError, match=r"parallel=split needs a loss .* got softmax\. Set loss\.kind=bce"):
        check(some, some, recipe, "single-label")


@given(
    world=st.integers(1, 3),
    goes=st.integers(1, 3),
    reduction=st.sampled_from(["sum", "mean", "image_mean"]),
    seed=st.integers(0, 1000),
)
def test_goes_whose_loss_is_that_of_all_processes_add_up(world: int, goes: int, reduction: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(goes, world, 2, 5, generator=generator, dtype=torch.float64)  # two pictures a share
    targets = torch.randint(-1, 2, logits.shape, generator=generator)
    loss = build("bce", {"reduction": reduction})

    def everyone(_: torch.Tensor, reduction: str) -> torch.Tensor:
        assert reduction == "sum"
        return (targets >= 0).flatten(1).sum(1).float()

    processes: Any = SimpleNamespace(num_processes=world, device=torch.device("cpu"), reduce=everyone)
    empty = torch.zeros(2)
    batches = [Batch(empty, targets[go, 0], empty.long(), empty.bool()) for go in range(goes)]
    weights = Shares(loss, processes, goes, whole=True).weights(batches)
    parts = [loss(logits[go].flatten(0, 1), targets[go].flatten(0, 1)) * weights[go] for go in range(goes)]
    whole = loss(logits.flatten(0, 2), targets.flatten(0, 2))
    torch.testing.assert_close(torch.stack(parts).sum(), whole, rtol=1e-5, atol=1e-7, check_dtype=False)


@pytest.mark.slow
def test_four_processes_end_like_one_and_resume_what_two_saved(
    start: str, one: Path, two: Path, tmp_path: Path
) -> None:
    shutil.copytree(two / "run-copy", tmp_path / "resumed")
    for trace in (tmp_path / "resumed").glob("trace-*"):
        trace.unlink()
    jobs = [Job(str(tmp_path / "run"), (*PLAIN, start, SPLIT)), Job(str(tmp_path / "resumed"), resume=True)]
    together(jobs, tmp_path, processes=4)
    for job in jobs:
        check_same(Path(job.output), one)
        held = {(step.rank, step.held) for step in read_trace(Path(job.output))}
        assert held == {(0, 2 / 5), (1, 2 / 5), (2, 1 / 5), (3, 0.0)}
    check_each_once(read_trace(tmp_path / "run"))


RANDOM = (*TINY, QUERIES, SPLIT)  # Adam, dropout, batch norm


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes with everything that is random."""
    root = tmp_path_factory.mktemp("undisturbed")
    together([Job(str(root / "run"), RANDOM)], root, processes=2)
    return root / "run"


@pytest.mark.slow
@pytest.mark.parametrize("moment", [1, 4, 7])
def test_a_process_may_be_killed_at_any_step(undisturbed: Path, tmp_path: Path, moment: int) -> None:
    kill_one(Job(str(tmp_path / "killed"), RANDOM, wait_at=moment), tmp_path)
    check_same(tmp_path / "killed", undisturbed, exactly=True)
    check_lives(tmp_path / "killed", undisturbed, moment)
    assert len(list((tmp_path / "killed" / "checkpoint").iterdir())) == 1


OTHERS = {
    "accumulate": ("training.accumulate=3",),
    "adam": ("optimiser.kind=adamw", "training.freeze=backbone"),
    "batch-norm": ("backbone.name=test_resnet", "backbone.options={output_stride: 16}"),
    "dropout": ("head.dropout=0.1",),
    "mean": ("loss.kind=bce", "optimiser.lr=0.1"),
    "mixed": ("augment.mixup=0.5", "augment.cutmix=0.5", "evaluation.flip=true"),
    "ordered": ("head.groups=ordered", "head.queries=learnable"),
    "half": ("training.precision=bf16",),
}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, with the whole layer and with a part of it, in two processes."""
    root = tmp_path_factory.mktemp("others")
    jobs = {}
    for name, words in OTHERS.items():
        start = first_weights(root / f"{name}-start", *PLAIN, *words)
        same = (*PLAIN, *words, start, "training.grouped_loss=true")
        jobs[name] = [Job(str(root / f"{name}-{k}"), (*same, f"training.parallel={k}")) for k in ("ddp", "split")]
    together(jobs.pop("half"), root, processes=2)  # Accelerate has one precision a process
    together([job for pair in jobs.values() for job in pair], root, processes=2)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OTHERS if name != "half"])
def test_a_part_each_trains_like_a_copy_each(others: Path, name: str) -> None:
    # The keys' bias shifts all scores of a query alike, so its gradient is rounding, of which Adam makes a step.
    check_same(others / f"{name}-split", others / f"{name}-ddp", but="key_value.bias" if name == "adam" else None)


@pytest.mark.slow
def test_half_precision_stays_near(others: Path) -> None:
    found, expected = ([row["loss"] for row in rows(others / f"half-{kind}")] for kind in ("split", "ddp"))
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
def test_weights_drawn_in_parts_train_alike_on_any_number_of_processes(tmp_path: Path) -> None:
    mld.train(recipe="scenes", output=tmp_path / "one", overrides=[*PLAIN, SPLIT], quiet=True)
    for processes in (2, 4):
        job = Job(str(tmp_path / f"{processes}"), (*PLAIN, SPLIT))
        together([job], tmp_path, processes=processes)
        check_same(Path(job.output), tmp_path / "one")
