"""One machine's own path against Ray, on the same pictures; and a cluster that loses one of its two machines.

    python -m tools.lake_table --hardware "two CPU cores" --commit HASH

The two paths take turns, so that a slow minute of the machine hits both.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil  # type: ignore[import-untyped]
import pyarrow.parquet as pq
import torch
from PIL import Image

import mldecoder as mld
from mldecoder.data import scenes
from mldecoder.predict import Predictor
from mldecoder.predict.files import tag_files
from mldecoder.predict.lake import tag_lake
from tools.tables import Table

Advance = Callable[[int, int], None]


@dataclass
class Watch:
    """When how many pictures were done, and the megabytes that the processes had then."""

    began: float = field(default_factory=time.perf_counter)
    marks: list[tuple[float, int, float]] = field(default_factory=list)

    def __call__(self, done: int, broken: int) -> None:
        """Note where it is."""
        now = time.perf_counter() - self.began
        last = self.marks[-1] if self.marks else (-1.0, 0, 0.0)
        memory = last[2] if now - last[0] < 0.5 else _memory()  # looking takes time too
        self.marks.append((now, done + broken, memory))

    def speed(self) -> float:
        """Pictures a second from a tenth of them to the last; what comes before is the start."""
        end, total, _ = self.marks[-1]
        begin, first, _ = next(mark for mark in self.marks if mark[1] >= total / 10)
        return (total - first) / (end - begin)

    def memory(self, first: float, last: float) -> float:
        """Most megabytes between two fractions of the pictures."""
        total = self.marks[-1][1]
        return max(mark[2] for mark in self.marks if first * total <= mark[1] <= last * total)


def draw(folder: Path, count: int) -> None:
    """Drawn pictures of 64 px as files, every other one JPEG."""
    for i in range(count):
        path = folder / f"{i // 500:03}" / f"{i:06}.{'jpg' if i % 2 else 'png'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scenes.draw(i, "train")[0]).save(path)


def once(folder: Path, count: int) -> str:
    """Whether every picture is in an output once."""
    names = pq.read_table(folder, columns=["path"])["path"].to_pylist()
    return "yes" if len(names) == len(set(names)) == count else f"no: {len(names)} rows, {len(set(names))} pictures"


@contextmanager
def cluster() -> Iterator[Any]:
    """Two machines with one core each, as far as Ray can tell."""
    import ray
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = 100 * 2**20
        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "object_store_memory": store, "include_dashboard": False},
        )
        made.add_node(num_cpus=1, object_store_memory=store)
        try:
            yield made
        finally:
            ray.shutdown()
            made.shutdown()  # type: ignore[no-untyped-call]


def _memory() -> float:
    """Megabytes of this process and of those below it that hold a model."""
    own, total = psutil.Process(), 0
    for process in [own, *own.children(recursive=True)]:
        try:
            name = (process.cmdline() or [""])[0]
            if process == own or (name.startswith("ray::") and "Map" in name):
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20


def row(name: str, watches: list[Watch], seconds: list[float], whole: str) -> dict[str, object]:
    """A line of the table: medians over the rounds."""
    return {
        "path": name,
        "pictures": watches[0].marks[-1][1],
        "pictures a second": round(median(watch.speed() for watch in watches), 1),
        "start to end, s": round(median(seconds), 1),
        "to the first result, s": round(median(watch.marks[0][0] for watch in watches), 1),
        "MB, first third": round(median(watch.memory(0, 1 / 3) for watch in watches)),
        "MB, last third": round(median(watch.memory(2 / 3, 1) for watch in watches)),
        "every picture once": whole,
    }


def measure(predictor: Predictor, pictures: Path, home: Path, count: int, rounds: int) -> list[dict[str, object]]:
    """Take turns, then lose a machine."""
    tag_files(predictor, [pictures / "000"], home / "warm", "parquet")  # the first pass allocates
    kinds: dict[str, Callable[[Path, Advance], object]] = {
        "one process": lambda out, watch: tag_files(predictor, [pictures], out, "parquet", advance=watch),
        "--ray": lambda out, watch: tag_lake(predictor, [pictures], out, advance=watch),
    }
    watches: dict[str, list[Watch]] = {name: [] for name in kinds}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    whole = dict.fromkeys(kinds, "yes")
    for turn in range(rounds):
        for name, tag in kinds.items():
            out, watch = home / f"{name.strip('-')}-{turn}", Watch()
            tag(out, watch)
            watches[name].append(watch)
            seconds[name].append(time.perf_counter() - watch.began)
            whole[name] = once(out, count) if whole[name] == "yes" else whole[name]
            sys.stdout.write(f"{name}: {watch.speed():.1f} pictures a second, {seconds[name][-1]:.1f} s in all\n")
    rows = [row(name, watches[name], seconds[name], whole[name]) for name in kinds]
    with cluster() as machines:
        [other] = [node for node in machines.list_all_nodes() if node != machines.head_node]
        watch, lost = Watch(), False

        def lose(done: int, broken: int) -> None:
            nonlocal lost
            watch(done, broken)
            if done > count * 0.4 and not lost:
                lost = True
                machines.remove_node(other, allow_graceful=False)

        tag_lake(predictor, [pictures], home / "lost", address=machines.address, advance=lose, patience=10)
        took = time.perf_counter() - watch.began
    rows.append(row("--ray, two machines, one lost at 40%", [watch], [took], once(home / "lost", count)))
    return rows


def table(rows: list[dict[str, object]], rounds: int, command: str, commit: str, hardware: str) -> Table:
    """The table with the ratio that counts."""
    one, many = (float(str(line["pictures a second"])) for line in rows[:2])
    return Table(
        "lake",
        "Tagging files: one process against Ray on the same cores",
        command,
        commit,
        hardware,
        rows,
        f"Drawn pictures of 64 px, half JPEG and half PNG, `test_resnet` with ML-Decoder; the paths take turns, "
        f"medians of {rounds} rounds. *Pictures a second* counts from a tenth of the pictures to the last: starting "
        f"Ray and the processes that hold the model is in *start to end*. On the same cores Ray reaches "
        f"{many / one:.2f} of the one process. *MB* is the resident memory of the process that asks and of those that "
        f"hold a model, shared pages counted in each. The last line has two machines of one core, of which one is "
        f"killed; its speed is that of what was left, and of the wait until the lost blocks were given to others.",
    )


def main() -> None:
    """Measure and write ``benchmarks/lake``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--home", type=Path, help="Where pictures and outputs go; a folder that is deleted by default.")
    parser.add_argument("--hardware", default="unknown hardware")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--dry", action="store_true", help="Write no table.")
    arguments = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)  # the one process gets all cores, whatever the environment says
    torch.manual_seed(0)
    head = {"kind": "ml-decoder", "width": 192, "ff_width": 512, "heads": 8}
    model = mld.create_model("test_resnet", labels=scenes.LABELS, head=head, img_size=64).eval()
    with tempfile.TemporaryDirectory(dir=arguments.home) as home:
        draw(Path(home, "in"), arguments.pictures)
        predictor = Predictor(model, threshold=0.3)
        rows = measure(predictor, Path(home, "in"), Path(home), arguments.pictures, arguments.rounds)
    command = f"python -m tools.lake_table --pictures {arguments.pictures} --rounds {arguments.rounds}"
    made = table(rows, arguments.rounds, command, arguments.commit, arguments.hardware)
    for line in rows:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(made.text + "\n")
    if not arguments.dry:
        made.write()


if __name__ == "__main__":
    main()
