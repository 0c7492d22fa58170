"""A lake on a cluster that loses a machine, and a command that is stopped: slow, each with a Ray of its own."""

import os
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from mldecoder.predict import Predictor
from mldecoder.predict.files import tag_files
from mldecoder.predict.lake import tag_lake
from tests.cli import command, environment, run
from tests.predict.lake import draw_lake, rows_in
from tests.predict.pictures import tiny
from tests.predict.test_files import broken_in

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two machines with a core each, as far as Ray can tell."""
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray leaves files open, and warns of its own old names
        store = 100 * 2**20
        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "object_store_memory": store, "include_dashboard": False},
        )
        made.add_node(num_cpus=1, object_store_memory=store)
        yield made
        ray.shutdown()
        made.shutdown()


def memory_of_models() -> list[float]:
    """Megabytes of each process that holds a model."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            name = (process.cmdline() or [""])[0]
            if name.startswith("ray::") and "Map" in name:
                found.append(process.memory_info().rss / 2**20)
        except psutil.NoSuchProcess:
            continue
    return found


def test_a_machine_lost_in_the_middle_loses_and_doubles_no_picture(
    cluster: Any,  # noqa: ANN401 - Ray's has no type
    tmp_path: Path,
) -> None:
    draw_lake(tmp_path / "in", 5_000)
    (tmp_path / "in" / "000" / "text.jpg").write_text("no picture")
    predictor = Predictor(tiny(), threshold=0.3)
    out = tmp_path / "out"
    [other] = [node for node in cluster.list_all_nodes() if node != cluster.head_node]
    lost: list[int] = []
    memory: list[tuple[int, float]] = []

    def watch(done: int, _: int) -> None:
        memory.append((done, max(memory_of_models(), default=0.0)))
        if done > 1_500 and not lost:
            lost.append(done)
            cluster.remove_node(other, allow_graceful=False)

    summary = tag_lake(predictor, [tmp_path / "in"], out, address=cluster.address, advance=watch, patience=5)
    assert lost
    assert (summary.tagged, summary.broken) == (5_000, 1)
    names = [row["path"] for row in rows_in(out)]
    assert len(names) == len(set(names)) == 5_000
    assert [Path(name).name for name in broken_in(out)] == ["text.jpg"]
    early = max(used for done, used in memory if done <= 1_500)
    late = max(used for done, used in memory if done > 3_500)
    assert 0 < late < early + 60
    tag_files(predictor, [tmp_path / "in"], tmp_path / "one", "parquet")
    for one, many in zip(rows_in(tmp_path / "one"), rows_in(out), strict=True):
        assert (one["path"], one["tags"]) == (many["path"], many["tags"])
        assert one["scores"] == pytest.approx(many["scores"], abs=1e-6)


def parts_in(folder: Path) -> int:
    return len(list(folder.glob("part-*.parquet")))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_whole_parts_and_goes_on(how: signal.Signals, tmp_path: Path) -> None:
    draw_lake(tmp_path / "in", 3_000)
    tiny().save_pretrained(tmp_path / "model")
    out = tmp_path / "out"
    words = ["predict", str(tmp_path / "model"), str(tmp_path / "in"), "--threshold", "0.3"]
    words += ["--parquet", f"{out}/", "--ray"]
    process = subprocess.Popen(command(*words), env=environment(), stderr=subprocess.PIPE, text=True)
    while parts_in(out) < 5:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    os.kill(process.pid, how)
    told = process.communicate(timeout=120)[1]
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "Traceback" not in told
    before = len(rows_in(out))
    assert before > 0
    last = run(*words)
    assert last.returncode == 0, last.stderr
    assert "were done before" in last.stderr
    names = [row["path"] for row in rows_in(out)]
    assert len(names) == len(set(names)) == 3_000
