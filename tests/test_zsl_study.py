"""The study of zero-shot settings: what it holds out, and that its words reach the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tools import zsl_study
from tools.zsl_pictures import WAYS, measure
from tools.zsl_study import HELD_OUT, NEIGHBOURS, Job, main, pseudo_unseen, summary, text_table

import mldecoder as mld
from mldecoder.data import scenes
from mldecoder.data.detect import open_dataset
from mldecoder.model import join
from tests.words import spell

TINY = ["image.size=32", "head.width=16", "head.ff_width=16", "training.epochs=1", "training.batch_size=10"]
ANIMALS = [f"{word} {kind}" for word in ("red", "green", "blue", "old", "new") for kind in ("dog", "cat", "cow")]


def coco(folder: Path) -> Path:
    """Fifteen classes, a picture each in both parts, in COCO's layout."""
    (folder / "annotations").mkdir(parents=True)
    (folder / "images").mkdir()
    for part, first in (("train", 0), ("val", 100)):
        images = [{"id": first + i, "file_name": f"{first + i}.jpg", "width": 32, "height": 32} for i in range(30)]
        notes = [
            {"id": image["id"], "image_id": image["id"], "category_id": i % 15 + 1, "bbox": [0, 0, 9, 9], "iscrowd": 0}
            for i, image in enumerate(images)
        ]
        categories = [{"id": i + 1, "name": name} for i, name in enumerate(ANIMALS)]
        content = {"images": images, "annotations": notes, "categories": categories}
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))
        for image in images:
            pixels = np.random.default_rng(int(str(image["id"]))).integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / str(image["file_name"]))
    return folder


def labels(folder: Path) -> Path:
    folder.mkdir()
    (folder / "coco_80.txt").write_text("\n".join(ANIMALS) + "\n")
    (folder / "coco_splits.json").write_text(json.dumps({"48_17": {"seen": [], "unseen": ANIMALS[-1:]}}))
    return folder


def settings(folder: Path, *names: str) -> Path:
    file = folder / "settings.json"
    file.write_text(json.dumps([[name, [*TINY, "data.workers=0"]] for name in names]))
    return file


def test_the_draw_of_held_out_classes_is_always_the_same() -> None:
    every = [f"class {i}" for i in range(63)]
    assert pseudo_unseen(every) == pseudo_unseen(every[::-1])
    assert len(pseudo_unseen(every)) == HELD_OUT == 13
    assert pseudo_unseen(every, fold=1) != pseudo_unseen(every)


def test_pairs_held_out_while_choosing_are_seen_ones_and_leave_every_colour_and_shape() -> None:
    assert set(NEIGHBOURS) <= set(scenes.SEEN)
    left = set(scenes.SEEN) - set(NEIGHBOURS)
    assert {label.split()[0] for label in left} == set(scenes.COLOURS)
    assert {label.split()[1] for label in left} == set(scenes.SHAPES)


def test_rows_are_gathered_over_seeds_the_best_unseen_first() -> None:
    figures = {"seen": 50.0, "GZSL": 40.0, "ZSL F1@3": 5.0, "seconds": 7, "overrides": ["a=1"]}
    rows = [
        {"name": "low", "seed": 0, "unseen": 9.0} | figures,
        {"name": "high", "seed": 1, "unseen": 22.0} | figures,
        {"name": "high", "seed": 0, "unseen": 20.0} | figures,
        {"name": "broken", "seed": 0, "error": ["no"]},
    ]
    lines = summary(rows)
    assert [line["name"] for line in lines] == ["high", "low"]
    assert lines[0]["unseen"] == "21.00 ± 1.41"
    assert next(iter(text_table(lines))).split()[:3] == ["name", "seeds", "seen"]
    assert not list(text_table([]))


def test_choosing_never_names_the_real_split_nor_the_validation_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[str]] = []

    def fake(job: Job, words: list[str], folder: Path, threads: int) -> list[dict[str, object]]:
        assert threads >= 1
        told.append(list(words))
        return [{"name": job.name, "seed": job.seed, "overrides": job.overrides, "error": [str(folder)]}]

    monkeypatch.setattr(zsl_study, "run", fake)
    monkeypatch.setattr(zsl_study, "pseudo_unseen", lambda seen, fold: sorted(seen)[fold : fold + 3])
    data, names = coco(tmp_path / "coco"), labels(tmp_path / "labels")
    own = ["--data", str(data), "--labels-dir", str(names), "--encoder", "glove-50", "--output", str(tmp_path / "out")]
    main(["coco", "--settings", str(settings(tmp_path, "plain")), *own])
    (words,) = told
    split = f"{names / 'coco_splits.json'}#48_17"
    assert f"data.leave_out={split}" in words
    assert f"data.unseen={split}" not in words
    assert str(tmp_path / "out" / "inner") in words
    assert str(data) not in words
    main(["final", "--settings", str(settings(tmp_path, "plain")), *own])
    assert len(told) == 1 + 3  # three seeds
    assert f"data.unseen={split}" in told[1]
    assert str(data) in told[1]


def test_missing_words_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words in (["scenes", "--output", str(tmp_path)], ["coco", "--output", str(tmp_path), "--settings", "x.json"]):
        with pytest.raises(SystemExit):
            main(words)
        assert "needs" in capsys.readouterr().err


def test_labels_from_pictures_are_measured_beside_words() -> None:
    dataset = open_dataset("scenes", options={"count": 60})
    base = mld.create_model("test_resnet", labels=scenes.LABELS, head="gap")
    head = {"kind": "zero-shot", "width": 16, "ff_width": 16, "heads": 2}
    model = join(base.backbone, base.config.backbone, head, scenes.LABELS, text=spell, unseen=scenes.UNSEEN).eval()
    assert dataset.val is not None
    found = measure(model, dataset.train, dataset.val, 5, 1)
    assert set(found) == {"word", *WAYS}
    assert all(0 <= value <= 100 for value in found.values())


@pytest.mark.slow
def test_a_few_steps_on_the_drawn_pictures_and_on_coco(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = settings(tmp_path, "plain")
    few.write_text(few.read_text().replace("data.workers=0", "data.options.count=40"))
    main(["scenes", "--settings", str(few), "--output", str(tmp_path / "out"), "--parallel", "1"])
    main(["scenes", "--choose", "--settings", str(few), "--output", str(tmp_path / "chosen"), "--parallel", "1"])
    data, names = coco(tmp_path / "coco"), labels(tmp_path / "labels")
    own = ["--data", str(data), "--labels-dir", str(names), "--encoder", "glove-50", "--output", str(tmp_path / "out")]
    small = settings(tmp_path, "plain")
    small.write_text(small.read_text().replace("image.size=32", 'backbone.name=test_resnet", "image.size=32'))
    main(["final", "--settings", str(small), *own, "--seeds", "2", "--parallel", "1"])
    assert "error" not in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "out" / "final.jsonl").read_text().splitlines()]
    assert [(row["name"], row["seed"]) for row in rows] == [
        (name, seed) for seed in (0, 1) for name in ("plain", "plain + neighbours")
    ]
    made = {table.name: table for table in zsl_study.tables(tmp_path / "out", "abc", "two cores")}
    assert set(made) == {"zsl-scenes", "zsl-coco"}
