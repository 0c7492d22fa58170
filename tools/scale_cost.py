"""What 1e6, 1e8 and 1e10 pictures with 1e4 and 1e6 classes cost on 1, 8 and 64 devices: a model made of measurements.

    python -m tools.scale_cost --pictures coco/images --write

Speeds and bytes come from the tables in ``benchmarks/``; what packed shards take is measured here, with ``--pictures``.
Without it those figures are taken from the table that is there. ``--write`` writes ``benchmarks/scale-cost`` and the
tables of ``docs/scale.md``. Every row says whether it is measured, counted (by a formula) or extrapolated, and of what.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mldecoder.losses.split_cost import SplitBytes, bytes_moved, split_bytes
from tools.tables import HOME, Table

__all__ = ["DEVICES", "FEW", "MANY", "PICTURES", "Figures", "Row", "Size", "kept", "read_figures", "rows"]

PICTURES, DEVICES = (10**6, 10**8, 10**10), (1, 8, 64)
WIDTH, MIB, GIB = 768, 2**20, 2**30
Row = dict[str, object]


@dataclass(frozen=True)
class Size:
    """A number of classes, the queries that answer for them, and the pictures of a device in a step."""

    classes: int
    queries: int
    batch: int  # the one that was measured


FEW, MANY = Size(10**4, 100, 64), Size(10**6, 1000, 256)


@dataclass(frozen=True)
class Figures:
    """What was measured: all that the model stands on."""

    train: float  # pictures a second, training from files, one device
    decode: float  # pictures a second, decoding alone
    head: float  # us a picture, forwards and backwards, 1,000 classes, 100 queries
    head_wide: float  # the same, 100,000 classes
    head_infer: float  # us a picture, inference, 1,000 classes, 100 queries
    loss: float  # ms a step: group layer and loss, a million classes, batch 256
    adamw: float  # ms a step, for a million classes
    top_k: float  # ms a batch of 256
    parts: Mapping[str, float]  # MiB held at a million classes, by part
    beyond: float  # MiB that AdamW's step takes beyond
    formula: float  # the largest error of the formula for a split layer, as a share
    file: float  # bytes of a picture's file
    tar: float  # bytes a picture in a shard beyond its file
    index: float  # bytes a picture in the index
    memory: float  # bytes a picture of a process that has the index open
    order: float  # bytes a picture at the highest while an epoch's order is computed


def _table(name: str, home: Path) -> list[Row]:
    found: list[Row] = json.loads((home / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return found


def _number(value: object) -> float:
    """The first number of a cell such as ``8.22 us/image``."""
    return float(re.findall(r"[\d.]+", str(value))[0])


def read_figures(shards: Mapping[str, float], home: Path = HOME) -> Figures:
    """Collect the figures from the tables; ``shards`` are those of :func:`measured`."""
    pipeline = next(row for row in _table("coco-pipeline", home) if row["workers"] == 12)  # the default on 16 cores
    speed = {str(row["figure"]): _number(row["measured"]) for row in _table("head-speed", home)}
    step = {str(row["part"]): row for row in _table("extreme-classes", home)}
    split = [row for row in _table("split-head", home) if row["peak"] != ""]
    held = ("weights and bias", "gradients of weights and bias", "state and step of AdamW")
    return Figures(
        train=_number(pipeline["training from files"]),
        decode=_number(pipeline["decoding alone"]),
        head=speed["head, forward + backward, N=1,000, CUDA graph"],
        head_wide=speed["head, forward + backward, N=100,000, CUDA graph"],
        head_infer=speed["head, inference, N=1,000"],
        loss=_number(step["group FC + asymmetric loss, forwards and backwards"]["ms"]),
        adamw=_number(step["state and step of AdamW"]["ms"]),
        top_k=_number(step["top 100 of each image"]["ms"]),
        parts={part: _number(step[part]["held, MiB"]) for part in held},
        beyond=_number(step["state and step of AdamW"]["beyond, MiB"]),
        formula=max(abs(_number(row["by the formula"]) / _number(row["peak"]) - 1) for row in split),
        **shards,
    )


SHARDS = {
    "file": "a picture's file, mean",
    "tar": "a picture in a shard, beyond its file",
    "index": "a picture in the index",
    "memory": "a picture in a process that has the index open",
    "order": "a picture while an epoch's order is computed, at most",
}


def measured(pictures: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Measure what shards take, and say of what."""
    from tools.scale_index import file_bytes, index_bytes, order_bytes, tar_bytes

    count, size = file_bytes(pictures)
    index, memory = index_bytes(10**6)
    found = {"file": size, "tar": tar_bytes(500), "index": index, "memory": memory, "order": order_bytes(10**6)}
    rows = "tools/scale_index.py, a million random rows with three labels each"
    sources = dict.fromkeys(found, rows) | {
        "file": f"{count:,} COCO pictures whose shorter side is 256 px",
        "tar": "tools/scale_index.py, 600 drawn scenes packed by `mldecoder shard`",
    }
    return {name: round(value, 1) for name, value in found.items()}, sources


def kept(home: Path = HOME) -> tuple[dict[str, float], dict[str, str]]:
    """What an earlier run measured."""
    there = {str(row["what"]): row for row in _table("scale-cost", home)}
    values = {name: _number(there[what]["figure"]) for name, what in SHARDS.items()}
    return values, {name: str(there[what]["from"]) for name, what in SHARDS.items()}


def training_seconds(figures: Figures, size: Size) -> float:
    """Seconds of one device for one picture: what was measured, and what more classes add to it.

    The measured step had 80 classes. To 10,000 the head grows along the line between its two measured sizes. At a
    million the group layer and loss were measured themselves; the decoder's 900 further queries are counted as nine
    times the whole head of 100, which is more than they take.
    """
    f, us, ms = figures, 1e-6, 1e-3
    if size is FEW:
        slope = max(0.0, f.head_wide - f.head) / (100_000 - 1000)
        more = slope * (size.classes - 1000) * us + f.adamw * ms * size.classes / 10**6 / size.batch
    else:
        more = 9 * f.head * us + (f.loss + f.adamw) * ms / size.batch
    return 1 / f.train + more


def tagging_seconds(figures: Figures, size: Size) -> tuple[float, float]:
    """Seconds of one device for one picture, if it goes as fast as decoding alone, and as training from files.

    Tagging itself was not measured on a GPU. It decodes the same files, and its step is a part of a training step.
    """
    more = 0.0 if size is FEW else 9 * figures.head_infer * 1e-6 + figures.top_k * 1e-3 / size.batch
    return 1 / figures.decode + more, 1 / figures.train + more


def layer(size: Size, devices: int, split: bool) -> SplitBytes:
    """The group layer on one of the devices, by the formula, with AdamW."""
    ranks = devices if split else 1
    batch = size.batch * ranks
    return split_bytes(size.classes, size.queries, WIDTH, ranks, "adamw", batch, precision=2, fused=True)


def layer_gib(size: Size, devices: int, split: bool) -> float:
    """The most at a time: weights, average, gradients, state, and the larger of the loss's and AdamW's own needs."""
    found = layer(size, devices, split)
    rest = found.peak - found.held - found.gradients
    return (found.held + found.gradients + found.weights + max(rest, found.weights)) / GIB


def measured_gib(figures: Figures) -> float:
    """The same for a million classes on one device, of the parts that were measured; the average is as the weights."""
    weights = figures.parts["weights and bias"]
    return (sum(figures.parts.values()) + weights + figures.beyond) * MIB / GIB


def moved_mib(size: Size, devices: int, split: bool) -> float:
    """What a device receives in a step for the group layer: gradients of a ring, or queries and their gradients."""
    if split:
        return bytes_moved(size.queries, WIDTH, devices, size.batch * devices, 49, precision=2)["queries"] / MIB
    return 2 * (devices - 1) / devices * layer(size, devices, split=False).gradients / MIB


def rows(figures: Figures, sources: Mapping[str, str]) -> list[Row]:
    """The whole model, a figure a row; first what it stands on."""
    return [*_inputs(figures, sources), *_training(figures), *_memory(figures), *_tagging(figures), *_storage(figures)]


def _row(what: str, figure: float, unit: str, standing: str, of: str, **sizes: int) -> Row:
    named = {name: sizes.get(name, "") for name in ("pictures", "classes", "devices")}
    return {"what": what, **named, "figure": _short(figure), "unit": unit, "standing": standing, "from": of}


def _short(value: float) -> float | int:
    """Three digits: nobody should read more out of it."""
    rounded = float(f"{value:.3g}")
    return int(rounded) if rounded >= 100 else rounded


def _inputs(f: Figures, sources: Mapping[str, str]) -> Iterator[Row]:
    for what, value, unit, source in (
        ("training from files, one device, 80 classes", f.train, "pictures/s", "coco-pipeline, 12 workers"),
        ("decoding alone, 16 cores", f.decode, "pictures/s", "coco-pipeline, 12 workers"),
        ("head, forwards and backwards, 1,000 classes", f.head, "us/picture", "head-speed, CUDA graph"),
        ("head, forwards and backwards, 100,000 classes", f.head_wide, "us/picture", "head-speed, CUDA graph"),
        ("head, inference, 1,000 classes", f.head_infer, "us/picture", "head-speed"),
        ("group layer and loss, a million classes, batch 256", f.loss, "ms/step", "extreme-classes"),
        ("AdamW, a million classes", f.adamw, "ms/step", "extreme-classes"),
        ("top 100, a million classes, batch 256", f.top_k, "ms/batch", "extreme-classes"),
        ("error of the formula for a split layer, at most", 100 * f.formula, "%", "split-head, 1, 2 and 4 processes"),
    ):
        yield _row(what, value, unit, "measured", f"benchmarks/{source}")
    for name, what in SHARDS.items():
        yield _row(what, getattr(f, name), "bytes", "measured", sources[name])


def _training(f: Figures) -> Iterator[Row]:
    sources = {
        FEW: "coco-pipeline, head-speed, extreme-classes (AdamW)",
        MANY: "coco-pipeline, head-speed, extreme-classes",
    }
    for size in (FEW, MANY):
        for pictures in PICTURES:
            for devices in DEVICES:
                hours = pictures * training_seconds(f, size) / devices / 3600
                of = sources[size] + ("" if devices == 1 else "; one device divided, messages not counted")
                sizes = {"pictures": pictures, "classes": size.classes, "devices": devices}
                yield _row("training, an epoch", hours, "h", "extrapolated", of, **sizes)


def _memory(f: Figures) -> Iterator[Row]:
    error = f"formula, within {100 * f.formula:.1f}% of what was measured at 200,000 classes (split-head)"
    for size in (FEW, MANY):
        for devices in DEVICES:
            sizes = {"classes": size.classes, "devices": devices}
            if size is MANY and devices == 1:
                of = "extreme-classes, parts added; the average counted as the weights"
                yield _row("group layer, whole", measured_gib(f), "GiB/device", "measured", of, **sizes)
                continue
            yield _row("group layer, whole", layer_gib(size, devices, False), "GiB/device", "counted", error, **sizes)
            if devices > 1:
                in_parts = layer_gib(size, devices, True)
                yield _row("group layer, split", in_parts, "GiB/device", "counted", error, **sizes)
                for name, split in (("ddp", False), ("split", True)):
                    of = "two passes of a ring" if not split else "mldecoder.losses.split_cost.bytes_moved"
                    moved = moved_mib(size, devices, split)
                    yield _row(f"received in a step, {name}", moved, "MiB/device", "counted", of, **sizes)


def _tagging(f: Figures) -> Iterator[Row]:
    for size in (FEW, MANY):
        for pictures in PICTURES:
            for devices in DEVICES:
                sizes = {"pictures": pictures, "classes": size.classes, "devices": devices}
                ends = zip(("as decoding", "as training"), ("decoding alone", "training from files"), strict=True)
                for (name, source), seconds in zip(ends, tagging_seconds(f, size), strict=True):
                    of = f"coco-pipeline, {source}" + ("" if size is FEW else "; head-speed, extreme-classes (top-k)")
                    hours = pictures * seconds / devices / 3600
                    yield _row(f"tagging, {name}", hours, "h", "extrapolated", of, **sizes)


def _storage(f: Figures) -> Iterator[Row]:
    for pictures in PICTURES:
        for what, each, unit in (
            ("shards on disk", f.file + f.tar, "GB"),
            ("index on disk", f.index, "GB"),
            ("index in memory", f.memory, "GB/process"),
            ("order of an epoch, at most", f.order, "GB/process"),
            ("names already tagged, when going on", 8, "GB"),
        ):
            of = "bytes a picture, above" if each != 8 else "eight bytes a name (mldecoder.predict.output)"
            standing = (
                "counted" if each == 8 else "measured" if pictures == 10**6 and "disk" not in what else "extrapolated"
            )
            yield _row(what, pictures * each / 1e9, unit, standing, of, pictures=pictures)


def main() -> None:
    """Compute, show and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, help="Folder of pictures; measures what shards take anew.")
    parser.add_argument("--write", action="store_true", help="Write benchmarks/scale-cost and the tables of the page.")
    parser.add_argument("--commit", help="With --write: the commit.")
    arguments = parser.parse_args()
    if arguments.write and not arguments.commit:
        parser.error("--write needs --commit")
    shards, sources = measured(arguments.pictures) if arguments.pictures else kept()
    made = rows(read_figures(shards), sources)
    sys.stdout.write("".join(json.dumps(row) + "\n" for row in made))
    if arguments.write:
        from tools.scale_page import PAGE, fill, page_tables

        Table(
            "scale-cost",
            "What very many pictures and classes cost: measured, counted, extrapolated",
            "python -m tools.scale_cost --pictures coco/images --write",
            arguments.commit,
            "no GPU: it computes from the tables named in each row; what shards take was measured on two CPU cores",
            made,
            "ResNet-50 with ML-Decoder, 224 px, width 768, AdamW. A device is one H200 with 16 cores to decode for it; "
            "nothing was measured on more than one. 10,000 classes have 100 queries and 64 pictures a device in a "
            "step, a million has 1,000 and 256. Hours on several devices are those of one divided: waiting for "
            "messages, machines and storage comes on top. [Past one machine](../docs/scale.md) says what is left out.",
        ).write()
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), page_tables(made)), encoding="utf-8")


if __name__ == "__main__":
    main()
