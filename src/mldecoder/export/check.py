"""Compare a file with the model that it was made from, on drawn pictures.

Shapes: b batch, h and w height and width, n labels, e text width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mldecoder.data import scenes
from mldecoder.data.transforms import normalise
from mldecoder.errors import ConfigError
from mldecoder.export.wrap import Exportable
from mldecoder.heads import ZeroShotMLDecoder

__all__ = ["BATCHES", "Case", "Run", "cases", "largest_difference", "pictures", "text_vectors"]

BATCHES = (1, 7)
Run = Callable[[Sequence[NDArray[np.generic]]], NDArray[np.float32]]


@dataclass(frozen=True)
class Case:
    """Inputs to compare on."""

    name: str
    inputs: tuple[Tensor, ...]


def cases(module: Exportable, size: tuple[int, int], *, batches: Sequence[int] = BATCHES) -> list[Case]:
    """Batches of pictures; a zero-shot model is also asked for fewer labels than it has."""
    made = []
    for i, batch in enumerate(batches):
        inputs = [pictures(module, batch, size)]
        words = module.model.words
        if words is not None:
            inputs.append(text_vectors(module, len(words.vectors) if i == 0 else len(words.vectors) // 2))
        made.append(Case(f"batch {batch} of {size[0]} x {size[1]} px", tuple(inputs)))
    return made


def pictures(module: Exportable, count: int, size: tuple[int, int]) -> Tensor:
    """Drawn scenes as the module takes them; noise where pictures have other than three channels."""
    config, (height, width) = module.model.config, size
    channels = config.backbone.in_chans
    if channels == 3:
        drawn = (Image.fromarray(scenes.draw(i, "val")[0]).resize((width, height)) for i in range(count))
        images = torch.stack([torch.from_numpy(np.array(picture)) for picture in drawn])  # (b, h, w, 3)
    else:
        noise = torch.Generator().manual_seed(0)
        images = torch.randint(256, (count, height, width, channels), generator=noise, dtype=torch.uint8)
    if module.preprocessing:
        return images
    if channels != len(config.preprocessing.mean):
        return images.permute(0, 3, 1, 2).float() / 127.5 - 1
    return normalise(images.permute(0, 3, 1, 2), config.preprocessing)


def text_vectors(module: Exportable, count: int) -> Tensor:
    """About ``count`` of a zero-shot model's own vectors: two groups at least, as many as the head takes at most."""
    head, words = module.model.head, module.model.words
    if words is None or not isinstance(head, ZeroShotMLDecoder):
        raise ConfigError(f"Text vectors are for zero-shot models, this one is {module.model.config.head.kind}.")
    vectors = words.vectors.float()
    most = count + head.group_size + 1 if head.num_groups is None else head.num_groups * head.group_size
    count = min(max(count, head.group_size + 1), most)
    return vectors.repeat(-(-count // len(vectors)), 1)[:count]


def largest_difference(run: Run, reference: Exportable, among: Sequence[Case]) -> float:
    """The largest step between what the file and the model give; infinite where one of them gives no number."""
    largest = 0.0
    for case in among:
        with torch.inference_mode():
            expected = reference(*case.inputs).double().numpy()
        found = run([tensor.contiguous().numpy() for tensor in case.inputs]).astype(np.float64)
        if found.shape != expected.shape or not np.isfinite(found).all():
            return float("inf")
        largest = max(largest, float(np.abs(found - expected).max()))
    return largest
