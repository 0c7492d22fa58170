"""Several processes are one: the same weights, figures and checkpoints, with copies (DDP) and with shards (FSDP2)."""

import shutil
from pathlib import Path

import pytest

import mldecoder as mld
from mldecoder.errors import CheckpointError, ConfigError
from tests.cli import run
from tests.training.same import COMPARABLE, TINY, check_each_once, check_lives, check_same, kill_one, rows, together
from tests.training.together import Job, read_trace

FSDP = "training.parallel=fsdp"
KINDS = ["ddp", "fsdp"]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process, undisturbed."""
    folder = tmp_path_factory.mktemp("one") / "run"
    mld.train(recipe="scenes", output=folder, overrides=COMPARABLE, quiet=True)
    history = rows(folder)
    assert history[1]["loss"] < 0.9 * history[0]["loss"]  # it learns: the weights that are compared have moved
    return folder


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes: runs, copies of them as they were in their second epoch, and one with Adam and dropout."""
    root = tmp_path_factory.mktemp("many")
    jobs = [Job(str(root / kind), (*COMPARABLE, f"training.parallel={kind}"), copy_at=8) for kind in KINDS]
    jobs.append(Job(str(root / "adam"), (*TINY, FSDP)))
    together(jobs, root, processes=2)
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_end_like_one(one: Path, many: Path, kind: str) -> None:
    check_same(many / kind, one)


@pytest.mark.parametrize(("kind", "share"), [("ddp", 1.0), ("fsdp", 0.5)])
def test_a_process_holds_the_model_or_its_share_of_it(many: Path, kind: str, share: float) -> None:
    for step in read_trace(many / kind):
        assert step.held == pytest.approx(share, abs=0.02)  # rows that do not divide make parts uneven


@pytest.mark.parametrize("kind", KINDS)
def test_each_picture_comes_once_an_epoch(many: Path, kind: str) -> None:
    check_each_once(read_trace(many / kind))


@pytest.mark.parametrize("kind", KINDS)
def test_what_two_processes_saved_one_resumes(one: Path, many: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(many / f"{kind}-copy", folder)
    assert len(rows(folder)) == 1
    if kind == "fsdp":
        mld.train(output=folder, resume=True, quiet=True)
    else:  # or by the same command
        mld.train(recipe="scenes", output=folder, overrides=COMPARABLE, resume_if_there=True, quiet=True)
    check_same(folder, one)


def test_a_killed_process_is_started_anew_and_the_run_ends_as_if_nothing_had_been(many: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    kill_one(Job(str(killed), (*TINY, FSDP), wait_at=7), tmp_path)
    check_same(killed, many / "adam", exactly=True)
    check_lives(killed, many / "adam", moment=7)
    assert len(list((killed / "checkpoint").iterdir())) == 1  # old and half-written ones are gone


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes, undisturbed, with everything that is random."""
    root = tmp_path_factory.mktemp("whole")
    together([Job(str(root / kind), (*TINY, f"training.parallel={kind}")) for kind in KINDS], root, processes=2)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", [1, 4, 6, 9])
def test_a_process_may_be_killed_at_any_step(whole: Path, tmp_path: Path, kind: str, moment: int) -> None:
    kill_one(Job(str(tmp_path / "killed"), (*TINY, f"training.parallel={kind}"), wait_at=moment), tmp_path)
    check_same(tmp_path / "killed", whole / kind, exactly=True)
    check_lives(tmp_path / "killed", whole / kind, moment)


@pytest.mark.slow
def test_four_processes_end_like_one_and_resume_what_two_saved(one: Path, many: Path, tmp_path: Path) -> None:
    jobs = []
    for kind in KINDS:
        shutil.copytree(many / f"{kind}-copy", tmp_path / f"{kind}-resumed")
        jobs.append(Job(str(tmp_path / kind), (*COMPARABLE, f"training.parallel={kind}")))
        jobs.append(Job(str(tmp_path / f"{kind}-resumed"), resume=True))
    together(jobs, tmp_path, processes=4)
    for job in jobs:
        check_same(Path(job.output), one)
    assert all(step.held == pytest.approx(0.25, abs=0.03) for step in read_trace(tmp_path / "fsdp"))
    check_each_once(read_trace(tmp_path / "fsdp"))


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torch.distributed.run", "accelerate.commands.launch"])
def test_both_launchers_start_the_command_line(one: Path, tmp_path: Path, launcher: str) -> None:
    more = {
        "torch.distributed.run": ["--standalone", "--nproc-per-node", "2"],
        # Its words for CPUs start one process; these start two, and without GPUs they meet on the CPU.
        "accelerate.commands.launch": ["--multi_gpu", "--num_processes", "2", "--num_machines", "1"],
    }[launcher]
    more += ["--mixed_precision", "no", "--dynamo_backend", "no"] if "accelerate" in launcher else []
    words = [word for override in (*COMPARABLE, FSDP) for word in ("--set", override)]
    done = run(
        "train", "--recipe", "scenes", "--output", str(tmp_path / "run"), *words, launcher=["-m", launcher, *more]
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Best mAP") == 1  # one process speaks
    check_same(tmp_path / "run", one)


@pytest.mark.slow
def test_a_batch_that_does_not_divide_names_one_that_does(tmp_path: Path) -> None:
    words = ["--set", "data.options.count=65", "--set", "training.batch_size=15", "--output", str(tmp_path / "run")]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = run("train", "--recipe", "scenes", *words, launcher=launcher)
    assert done.returncode != 0
    assert "must divide among 2 processes x 1 goes, got 15. Use 14." in done.stderr


OTHERS = {
    "accumulate": ("training.accumulate=3", "training.clip_norm=0.5"),
    "frozen": ("training.freeze=backbone", "optimiser.kind=adamw"),
    "batch-norm": ("backbone.name=test_resnet", "backbone.options={output_stride: 16}"),
    "grouped": ("training.grouped_loss=true",),
    "mean": ("loss.kind=bce", "optimiser.lr=0.1"),
    "words": ("head.kind=zero-shot", "data.unseen=scenes", "zero_shot.random_queries=0.2", "zero_shot.noise=0.1"),
    "half": ("training.precision=bf16",),
}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, both ways, in two processes."""
    root = tmp_path_factory.mktemp("others")
    jobs = {
        name: [Job(str(root / f"{name}-{kind}"), (*COMPARABLE, *words, f"training.parallel={kind}")) for kind in KINDS]
        for name, words in OTHERS.items()
    }
    together(jobs.pop("half"), root, processes=2)  # Accelerate has one precision a process
    together([job for pair in jobs.values() for job in pair], root, processes=2)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_shards_train_like_copies(others: Path, name: str) -> None:
    check_same(others / f"{name}-fsdp", others / f"{name}-ddp")


@pytest.mark.slow
def test_two_processes_with_the_grouped_loss_end_like_one_with_the_plain_loss(one: Path, others: Path) -> None:
    check_same(others / "grouped-fsdp", one)


def test_a_checkpoint_of_the_other_kind_is_not_passed_over(many: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(many / "ddp-copy", folder)
    text = (folder / "run.yaml").read_text()
    (folder / "run.yaml").write_text(text.replace("parallel: ddp", "parallel: fsdp"))
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt was not written with training\.parallel=fsdp"):
        mld.train(output=folder, resume=True, quiet=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["training.compile=true"], "compile"),
        (["training.precision=fp16"], "bf16"),
    ],
)
def test_what_does_not_go_with_shards_is_said(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"fsdp does not go with .*{message}"):
        mld.train(recipe="scenes", overrides=[FSDP, *words])


def test_synchronised_batch_norm_on_a_cpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs an accelerator"):
        mld.train(recipe="scenes", output=tmp_path, overrides=[*TINY, "training.sync_batch_norm=true"], quiet=True)
