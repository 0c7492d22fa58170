"""A server under load: many clients for minutes, some sending junk; batched against one picture at a time.

    python -m tools.serve_table --hardware "two CPU cores" --commit HASH

Clients and server share the machine. Every answer is compared with what ``predict`` says; in the middle of the batched
run one copy of the model is killed.
"""

import argparse
import io
import multiprocessing
import socket
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil  # type: ignore[import-untyped]
import torch
from PIL import Image

import mldecoder as mld
from mldecoder.data import scenes
from mldecoder.predict import Predictor
from mldecoder.serve import Settings
from mldecoder.serve.server import serving
from tools.tables import Table

Right = list[tuple[bytes, list[tuple[str, float]]]]
_JUNK = (b"", b"junk", b"<html></html>", b"\x89PNG\r\n\x1a\n junk", bytes(1000))


def pictures(model: mld.Classifier, count: int) -> Right:
    """Files, and the tags that ``predict`` gives them."""
    made: Right = []
    predictor = Predictor(model, threshold=0.3)
    for i in range(count):
        file = io.BytesIO()
        Image.fromarray(scenes.draw(i, "val")[0]).save(file, "JPEG" if i % 2 else "PNG")
        [said] = predictor(file.getvalue())
        made.append((file.getvalue(), [(tag.label, tag.score) for tag in said.tags]))
    return made


def ask(address: str, number: int, junk: bool, right: Right, seconds: float) -> dict[str, Any]:
    """One client, one picture after the other."""
    seen: Counter[str] = Counter()
    times: list[float] = []
    end, turn = time.perf_counter() + seconds, number
    with httpx.Client(base_url=address, timeout=120) as client:
        while time.perf_counter() < end:
            turn += 1
            content, want = right[turn % len(right)]
            bad = junk and turn % 2 == 0
            start = time.perf_counter()
            try:
                answer = client.post("/predict", content=_JUNK[turn % len(_JUNK)] if bad else content)
            except httpx.HTTPError as error:
                seen[f"no answer ({type(error).__name__})"] += 1
                continue
            took = time.perf_counter() - start
            if answer.status_code == 200:
                times.append(took)
                tags = [(tag["label"], tag["score"]) for tag in answer.json()["tags"]]
                seen["wrong" if bad or not same(tags, want) else "200"] += 1
            else:
                seen[str(answer.status_code)] += 1
                if answer.status_code == 503:
                    time.sleep(0.05)
    return {"seen": seen, "times": times}


def same(tags: list[tuple[str, float]], want: list[tuple[str, float]]) -> bool:
    """Whether two answers agree; the order of equal scores may differ in the last digits."""
    found, known = dict(tags), dict(want)
    sure = {label for label, score in known.items() if abs(score - 0.3) > 1e-4}
    return sure <= found.keys() and all(abs(score - known.get(label, 0.3)) < 1e-4 for label, score in found.items())


def _clients(address: str, numbers: list[int], junk: int, right: Right, seconds: float) -> list[dict[str, Any]]:
    """Some clients in threads of one process."""
    with ThreadPoolExecutor(len(numbers)) as pool:
        asked = [pool.submit(ask, address, number, number < junk, right, seconds) for number in numbers]
        return [one.result() for one in asked]


def load(address: str, arguments: argparse.Namespace, right: Right, *, kill: bool) -> dict[str, Any]:
    """All clients, in processes beside this one."""
    spawn = multiprocessing.get_context("spawn")
    groups = [list(range(i, arguments.clients, arguments.processes)) for i in range(arguments.processes)]
    with spawn.Pool(arguments.processes) as pool:
        work = [
            pool.apply_async(_clients, (address, numbers, arguments.junk, right, arguments.seconds))
            for numbers in groups
            if numbers
        ]
        if kill:
            time.sleep(arguments.seconds / 2)
            _copies()[0].kill()
        parts = [part for one in work for part in one.get()]
    seen: Counter[str] = Counter()
    for part in parts:
        seen.update(part["seen"])
    return {"seen": seen, "times": np.array([took for part in parts for took in part["times"]] or [float("nan")])}


def _copies() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if (process.cmdline() or [""])[0].startswith("ray::ServeReplica:mldecoder:Model")
    ]


def row(name: str, made: dict[str, Any], seconds: float) -> dict[str, object]:
    """A line of the table."""
    seen, times = made["seen"], made["times"] * 1000
    rest = {status: count for status, count in sorted(seen.items()) if status not in {"200", "422", "503", "wrong"}}
    return {
        "server": name,
        "pictures a second": round(seen["200"] / seconds, 1),
        **{f"p{q}, ms": round(float(np.percentile(times, q)), 1) for q in (50, 95, 99)},
        "right": seen["200"],
        "wrong": seen["wrong"],
        "junk told so (422)": seen["422"],
        "told to wait (503)": seen["503"],
        "anything else": ", ".join(f"{status}: {count}" for status, count in rest.items()) or 0,
    }


def measure(arguments: argparse.Namespace, home: Path) -> list[dict[str, object]]:
    """The servers, one after the other."""
    torch.manual_seed(0)
    model = mld.create_model(arguments.backbone, labels=scenes.LABELS, img_size=64).eval()
    model.save_pretrained(home)
    right = pictures(model, 64)
    common = {"run": str(home), "threshold": 0.3, "replicas": arguments.replicas}
    servers = {
        "one at a time": Settings(**common, batch_size=1, batch_wait=0, queue=256),
        "batched": Settings(**common),
        "batched, a copy killed": Settings(**common),
        "batched, little may wait": Settings(**common, batch_size=2, queue=1),
    }
    rows = []
    for name, settings in servers.items():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
        with serving(settings, port=port):
            made = load(f"http://127.0.0.1:{port}", arguments, right, kill="killed" in name)
        rows.append(row(name, made, arguments.seconds))
        sys.stdout.write(f"{rows[-1]}\n")
    return rows


def table(rows: list[dict[str, object]], arguments: argparse.Namespace) -> Table:
    """The table with the ratio that counts."""
    alone, batched = (float(str(line["pictures a second"])) for line in rows[:2])
    return Table(
        "serve",
        "Serving under load",
        f"python -m tools.serve_table --seconds {arguments.seconds:g} --clients {arguments.clients} "
        f"--junk {arguments.junk} --replicas {arguments.replicas} --backbone {arguments.backbone}",
        arguments.commit,
        arguments.hardware,
        rows,
        f"{arguments.clients} clients on loopback for {arguments.seconds:g} seconds each line, each sending one drawn "
        f"picture of 64 px after the other; {arguments.junk} of them send junk every other time. "
        f"`{arguments.backbone}` with ML-Decoder, {arguments.replicas} copies; clients and server share the machine. "
        f"Times are those of right answers, from sending to having the whole answer. Batches bring "
        f"{batched / alone:.2f} times the pictures a second of one at a time. *Wrong* is any answer that differs from "
        f"`predict`; *anything else* any other status, and requests that got no answer.",
    )


def main() -> None:
    """Measure and write ``benchmarks/serve``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0, help="How long each server is under load.")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--junk", type=int, default=4, help="How many of the clients send junk.")
    parser.add_argument("--processes", type=int, default=2, help="Processes that the clients live in.")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--backbone", default="efficientnet_b0")
    parser.add_argument("--hardware", default="unknown hardware")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--dry", action="store_true", help="Write no table.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        rows = measure(arguments, Path(home))
    made = table(rows, arguments)
    sys.stdout.write(made.text + "\n")
    if not arguments.dry:
        made.write()


if __name__ == "__main__":
    main()
