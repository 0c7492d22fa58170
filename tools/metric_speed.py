"""Exact average precision of many classes beside torchmetrics: time, extra memory, agreement.

    python -m tools.metric_speed --output map-cpu.json
    python -m tools.metric_speed --device cuda --output map-cuda.json
    python -m tools.metric_speed --write map-cpu.json map-cuda.json --commit COMMIT

Ours takes all classes. torchmetrics takes the first few of the same images, its time is scaled by the number of
classes, and it gets what suits it best: probabilities and int64 targets made before the clock starts, side by side
in memory, and no checks of its arguments. Rounds alternate between the two, so that what else runs on the machine
slows both. It does not slow them alike: on a busy machine torchmetrics, whose threads wait for each other many times
a class, suffers several times more. So it is timed in short turns, of which some fall into quiet moments, and the
figure to quote is its fastest turn in any result of the table against our fastest run of everything.

Shapes: n images, k classes.
"""

import argparse
import json
import os
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TypeVar

import torch
from torch import Tensor

from mldecoder.metrics import average_precision
from tools.tables import Table

__all__ = ["data", "extra_memory", "measure", "table"]

Result = TypeVar("Result")
MEBI = 2**20


def data(images: int, classes: int, share: float, device: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random logits (n, k) float32, 2 higher where the target is 1, and targets (n, k) int8 with some positive."""
    generator = torch.Generator(device).manual_seed(seed)
    scores = torch.empty(images, classes, device=device)
    targets = torch.empty(images, classes, dtype=torch.int8, device=device)
    for i in range(0, images, 1000):  # in blocks: what is made on the way must not count as memory needed later
        part = slice(i, i + 1000)
        targets[part] = torch.rand(targets[part].shape, device=device, generator=generator) < share
        scores[part].normal_(generator=generator).add_(targets[part], alpha=2)
    return scores, targets


def extra_memory(call: Callable[[], Result], device: str) -> tuple[Result, float]:
    """What a call returns, and the most MiB it held beyond what was there before."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = call()
        return result, (torch.cuda.max_memory_allocated() - before) / MEBI
    seen, done = [_resident()], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            seen.append(_resident())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        result = call()
    finally:
        done.set()
        thread.join()
    return result, (max(seen) - seen[0]) / MEBI


def _resident() -> int:
    """Bytes of this process in memory, as Linux counts them."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(
    images: int,
    classes: int,
    *,
    part: int,
    turns: int,
    share: float,
    rounds: int,
    device: str,
    chunk: int | None = None,
) -> dict[str, object]:
    """Run both, first once for memory and results, then in turns for time: all classes, then a part some times."""
    scores, targets = data(images, classes, share, device)
    parts = scores[:, :part].sigmoid(), targets[:, :part].long()
    loads = [os.getloadavg()[0]]

    def ours() -> Tensor:
        return average_precision(scores, targets, chunk=chunk)

    average_precision(scores[:, :2], targets[:, :2])  # loads what is loaded on the first call
    values, our_memory = extra_memory(ours, device)
    _torchmetrics(parts[0][:, :2], parts[1][:, :2])
    referee, their_memory = extra_memory(lambda: _torchmetrics(*parts), device)
    difference = average_precision(*parts).nan_to_num() - referee.double().nan_to_num()
    told: dict[str, object] = {
        "device": device,
        "hardware": _hardware(device),
        "threads": torch.get_num_threads(),
        "images": images,
        "classes": classes,
        "part": part,
        "share": share,
        "chunk": chunk,
        "mean": float(values.nanmean()),
        "largest difference": float(difference.abs().max()),
        "our memory": our_memory,
        "their memory": their_memory,
        "our seconds": [],
        "their seconds": [],
    }
    if device == "cuda":
        told["stops"] = {size: _stops(scores, targets, size) for size in (classes, -(-classes // 8))}
    times: dict[str, list[float]] = {"our seconds": [], "their seconds": []}
    for number in range(rounds):
        times["our seconds"].append(_seconds(ours, device))
        times["their seconds"] += [_seconds(lambda: _torchmetrics(*parts), device) for _ in range(turns)]
        loads.append(os.getloadavg()[0])
        sys.stderr.write(f"round {number + 1} of {rounds}: {[round(t[-1], 3) for t in times.values()]} s\n")
    return told | times | {"load": loads}


def _torchmetrics(probabilities: Tensor, targets: Tensor) -> Tensor:
    from torchmetrics.classification import MultilabelAveragePrecision

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of memory, and of classes without positives
        metric = MultilabelAveragePrecision(
            probabilities.shape[1], average=None, thresholds=None, validate_args=False
        ).to(probabilities.device)
        metric.update(probabilities, targets)
        result: Tensor = metric.compute()
    return result


def _seconds(call: Callable[[], object], device: str) -> float:
    _wait(device)
    started = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - started


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _stops(scores: Tensor, targets: Tensor, classes: int) -> int:
    """How often the host waits for the device during one call, as torch warns of it; more chunks, not more stops."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        average_precision(scores[:, :classes], targets[:, :classes])
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)


def _hardware(device: str) -> str:
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    file = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in file.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {torch.get_num_threads()} threads"


def table(results: Sequence[Mapping[str, object]], commit: str, note: str = "") -> Table:
    """Two lines a result: ours, and torchmetrics scaled to as many classes."""
    rows = [row for result in results for row in _rows(result, _fastest_class(result, results))]
    first = results[0]
    differences = [float(str(result["largest difference"])) for result in results]
    return Table(
        "map-scale",
        f"Exact mAP of {first['classes']:,} classes x {first['images']:,} images",
        "python -m tools.metric_speed --output FILE`, then `python -m tools.metric_speed --write FILES",
        commit,
        "; ".join(dict.fromkeys(str(result["hardware"]) for result in results)),
        rows,
        f"Random logits in float32, {100 * float(str(first['share'])):g}% positives, targets in int8. "
        "torchmetrics runs on a few classes of the same images and is scaled: its seconds are what all classes would "
        "take; its memory is that of the few. It gets probabilities, int64 targets and no checks of its arguments, "
        "all made before the clock starts. Rounds alternate; in brackets the fastest and the slowest. *faster* is the "
        "median of the rounds' ratios, *at least* our fastest run against its fastest turn in any of these results: a "
        "busy machine slows torchmetrics more, so this is the figure to quote. *memory* is the most held beyond scores "
        "and targets, *load* what else wanted to run (the load average of a minute, both measured programs included). "
        f"The values of both differ by at most {max(differences):.0e}: torchmetrics adds up in float32."
        + "".join(_told_stops(result) for result in results)
        + f" {note}",
    )


def _fastest_class(result: Mapping[str, object], results: Sequence[Mapping[str, object]]) -> float:
    """Seconds a class of torchmetrics' fastest turn among the results with the same images and hardware."""
    same = [r for r in results if all(r[key] == result[key] for key in ("device", "hardware", "images", "share"))]
    return min(min(_numbers(r["their seconds"])) / _number(r["part"]) for r in same)


def _rows(result: Mapping[str, object], fastest_class: float) -> list[dict[str, object]]:
    scale = _number(result["classes"]) / _number(result["part"])
    ours, theirs = _numbers(result["our seconds"]), [scale * t for t in _numbers(result["their seconds"])]
    turns = len(theirs) // len(ours)
    ratios = [median(theirs[i * turns : (i + 1) * turns]) / a for i, a in enumerate(ours)]
    loads = _numbers(result.get("load"))
    at_least = fastest_class * _number(result["classes"]) / min(ours)

    def row(name: str, seconds: list[float], memory: object, faster: str, least: str) -> dict[str, object]:
        return {
            "on": result["device"],
            "classes": result["classes"],
            "what": name,
            "seconds, all classes": _spread(seconds),
            "fastest, ms a class": _short(1000 * min(seconds) / _number(result["classes"])),
            "faster": faster,
            "at least": least,
            "memory, MiB": round(_number(memory)),
            "load": f"{min(loads):.1f} to {max(loads):.1f}" if loads else "",
        }

    return [
        row("average_precision", ours, result["our memory"], _spread(ratios), _short(at_least)),
        row(f"torchmetrics, {result['part']} classes, scaled", theirs, result["their memory"], "1", "1"),
    ]


def _number(value: object) -> float:
    return float(str(value))


def _numbers(values: object) -> list[float]:
    return [float(value) for value in values] if isinstance(values, list) else []


def _spread(values: Sequence[float]) -> str:
    return "{} ({} to {})".format(*(_short(value) for value in (median(values), min(values), max(values))))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _told_stops(result: Mapping[str, object]) -> str:
    stops = result.get("stops")
    if not isinstance(stops, Mapping):
        return ""
    told = " and ".join(f"{count} times for {int(size):,} classes" for size, count in stops.items())
    return f" On {result['device']} the host waits for the device {told}."


def main() -> None:
    """Measure and write a JSON file, or make the table of such files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--part", type=int, default=8, help="Classes that torchmetrics gets in a turn.")
    parser.add_argument("--turns", type=int, default=8, help="Turns of torchmetrics in a round.")
    parser.add_argument("--share", type=float, default=0.001, help="Share of positives.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--chunk", type=int, help="Classes at once; see average_precision.")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--write", type=Path, nargs="+", help="Make the table of these results instead.")
    parser.add_argument("--commit", default="")
    parser.add_argument("--note", default="", help="A sentence for the end of the table's text.")
    arguments = parser.parse_args()
    if arguments.write:
        results = [json.loads(file.read_text(encoding="utf-8")) for file in arguments.write]
        table(results, arguments.commit, arguments.note).write()
        return
    torch.set_num_threads(arguments.threads)
    told = measure(
        arguments.images,
        arguments.classes,
        part=min(arguments.part, arguments.classes),
        turns=arguments.turns,
        share=arguments.share,
        rounds=arguments.rounds,
        device=arguments.device,
        chunk=arguments.chunk,
    )
    text = json.dumps(told, indent=1)
    if arguments.output:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
