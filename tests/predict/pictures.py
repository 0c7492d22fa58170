"""Drawn scenes as files, and tiny models to tag them with."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image

import mldecoder as mld
from mldecoder.data import scenes

SMALL = {"kind": "ml-decoder", "width": 16, "ff_width": 16, "heads": 2}


def tiny(labels: tuple[str, ...] = scenes.LABELS, **options: object) -> mld.Classifier:
    """An untrained model for 64 px."""
    torch.manual_seed(0)
    arguments = {"labels": labels, "head": SMALL, "img_size": 64} | options
    return mld.create_model("test_resnet", **arguments).eval()  # type: ignore[arg-type]


def scene(i: int) -> Image.Image:
    return Image.fromarray(scenes.draw(i, "val")[0])


def write_scenes(folder: Path, count: int) -> list[Path]:
    """Some pictures in a tree of folders."""
    paths = []
    for i in range(count):
        path = folder / f"part {i % 3}" / f"scene-{i:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        scene(i).save(path)
        paths.append(path)
    return paths


def letters(words: Sequence[str]) -> torch.Tensor:
    """A text encoder: numbers drawn by each word's own seed."""
    draws = [torch.randn(8, generator=torch.Generator().manual_seed(zlib.crc32(word.encode()))) for word in words]
    return torch.stack(draws)


def zero_shot(**options: object) -> mld.Classifier:
    """An untrained model that takes any words."""
    torch.manual_seed(0)
    head = {"kind": "zero-shot", "width": 16, "ff_width": 16, "heads": 2} | options
    labels = ["red square", "green cross", "blue star"]
    return mld.create_model("test_resnet", labels=labels, head=head, img_size=64, text=letters).eval()
