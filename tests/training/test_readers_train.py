"""Every format of data goes the whole way: from its files through training to figures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import mldecoder as mld
from mldecoder.data.dataset import UNKNOWN, Dataset, Task
from mldecoder.data.detect import FORMATS, open_dataset
from tests.data import formats, layouts

SMALL = [
    "backbone.name=test_resnet",
    "backbone.pretrained=false",
    "image.size=32",
    "head.width=16",
    "head.ff_width=16",
    "training.epochs=1",
    "training.batch_size=4",
    "data.workers=0",
    "data.val_fraction=0.4",
]
FIGURES: dict[Task, set[str]] = {
    "multi-label": {"mAP", "CP", "CR", "CF1", "OP", "OR", "OF1"},
    "single-label": {"top1", "class_top1"},
}


class Case(NamedTuple):
    make: Callable[[Path], str | Path]
    format: str  # its name in FORMATS
    task: Task = "multi-label"
    options: tuple[str, ...] = ()
    unknown: bool = False  # whether it has targets that nobody knows


CASES = {
    "coco": Case(layouts.coco, "coco"),
    "voc": Case(layouts.voc, "voc", unknown=True),
    "nus-wide as listed": Case(layouts.nus_wide, "nus-wide"),
    "nus-wide by flickr number": Case(layouts.nus_wide_by_number, "nus-wide"),
    "nus-wide csv of the official code": Case(layouts.nus_wide_csv, "nus-wide"),
    "nus-wide 1006 labels": Case(layouts.nus_wide, "nus-wide", options=("nus_labels=1006",), unknown=True),
    "open-images": Case(layouts.open_images, "open-images", unknown=True),
    "open-images with machine labels": Case(
        layouts.open_images, "open-images", options=("machine_labels=true",), unknown=True
    ),
    "imagenet": Case(layouts.imagenet, "folders", "single-label"),
    "cifar-100 binary": Case(layouts.cifar_binary, "cifar", "single-label"),
    "cifar-100 pickled": Case(layouts.cifar_pickled, "cifar", "single-label"),
    "stanford-cars": Case(layouts.cars, "stanford-cars", "single-label"),
    "stanford-cars original": Case(layouts.cars_original, "stanford-cars", "single-label"),
    "csv with one label column": Case(formats.pets, "table", "single-label"),
    "csv with one column a label": Case(formats.column_a_label, "table", unknown=True),
    "jsonl": Case(formats.json_lines, "table"),
    "json": Case(formats.json_list, "table"),
    "parquet": Case(formats.parquet, "table"),
    "tar shards": Case(formats.shards, "shards", "single-label"),
    "hugging face save_to_disk": Case(formats.hugging_face, "hf", "single-label"),
    "scenes": Case(lambda _: "scenes", "scenes", options=("count=8",)),
}


def test_no_format_is_forgotten() -> None:
    assert {case.format for case in CASES.values()} == {*FORMATS, "scenes"}


@pytest.mark.parametrize("name", CASES)
def test_every_format_trains_and_is_evaluated(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    source = case.make(tmp_path / "data")
    overrides = [*SMALL, *(f"data.options.{option}" for option in case.options)]
    read = open_dataset(source, options=dict(_pair(option) for option in case.options))
    assert has_unknown(read) == case.unknown

    run = mld.train(source, output=tmp_path / "run", overrides=overrides, quiet=True)
    written = json.loads((run.path / "metrics.json").read_text())
    others = set().union(*FIGURES.values()) - FIGURES[case.task]
    assert FIGURES[case.task] <= written.keys()
    assert not others & written.keys()
    assert all(0 <= written[key] <= 100 for key in FIGURES[case.task])
    assert run.model().labels == read.labels
    assert run.model().config.task == read.task == case.task
    assert (run.path / "report.html").is_file()

    expected = {key: value for key, value in written.items() if key in FIGURES[case.task]}
    for again in (mld.evaluate(run.path), mld.evaluate(run.path, source)):
        assert {key: again[key] for key in expected} == pytest.approx(expected, abs=1e-6)


def has_unknown(data: Dataset) -> bool:
    parts = [data.train] + ([data.val] if data.val is not None else [])
    return any(bool((part.targets.rows(range(len(part))) == UNKNOWN).any()) for part in parts)


def _pair(option: str) -> tuple[str, object]:
    key, _, value = option.partition("=")
    return key, json.loads(value)
