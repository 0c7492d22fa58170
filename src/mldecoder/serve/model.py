"""A copy of the model: pictures are decoded as they come, and scored together.

Shapes: b batch, k labels, h and w height and width.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mldecoder.data.decode import header_size
from mldecoder.errors import DataError
from mldecoder.model import load
from mldecoder.predict import Predictor, Source
from mldecoder.predict.ahead import default_workers, quiet_pillow
from mldecoder.predict.device import best_device
from mldecoder.serve.settings import Settings

__all__ = ["ServedModel"]


class ServedModel:
    """Answers as ``mldecoder predict`` does; what cannot be read is told, not raised.

    Args:
        settings: The model and its limits.
    """

    def __init__(self, settings: Settings) -> None:
        model = load(settings.run).to(best_device()).eval()
        self.settings = settings
        self.predictor = Predictor(
            model, labels=settings.labels, top_k=settings.top_k, threshold=settings.threshold, batch_size=1
        )
        height, width = model.config.preprocessing.size
        self.predictor.probabilities(torch.zeros(1, 3, height, width, dtype=torch.uint8))  # the first pass allocates
        self._decoders = ThreadPoolExecutor(default_workers(), thread_name_prefix="decode")
        self._scorer = ThreadPoolExecutor(1, thread_name_prefix="score")  # one batch at a time on the device

    async def prepared(self, content: bytes) -> Tensor | dict[str, Any]:
        """The picture as the model takes it, uint8 ``(3, h, w)``, or the answer that says why not."""
        return await asyncio.get_running_loop().run_in_executor(self._decoders, self._prepare, content)

    async def scored(self, images: list[Tensor]) -> list[NDArray[np.float64]]:
        """Scores of several pictures, ``(k,)`` each."""
        return await asyncio.get_running_loop().run_in_executor(self._scorer, self._score, images)

    def answer(self, scores: NDArray[np.float64], *, all_scores: bool) -> dict[str, Any]:
        """Plain values: tags, and the score of every label if asked."""
        plain = self.predictor.tag("", scores).to_dict(all_scores=all_scores)
        del plain["path"]  # the picture came without one
        return plain

    def _prepare(self, content: bytes) -> Tensor | dict[str, Any]:
        pixels = pixels_of(content)
        if pixels > self.settings.max_pixels:
            limit = f"{self.settings.max_pixels:,}"
            return {"status": 413, "error": f"The picture must have at most {limit} pixels, got {pixels:,}."}
        try:
            with quiet_pillow():
                return self.predictor.prepare(Source("", content))
        except DataError as error:
            reason = str(error).removesuffix(".")
            return {"status": 422, "error": f"The body must be a whole picture, such as a JPEG or PNG file: {reason}."}

    def _score(self, images: list[Tensor]) -> list[NDArray[np.float64]]:
        return list(self.predictor.probabilities(torch.stack(images)).numpy())


def pixels_of(content: bytes) -> int:
    """Pixels by the header, before anything is decoded; 0 where there is no picture."""
    try:
        width, height = header_size(content) or (0, 0)
    except Image.DecompressionBombError:
        return 2 * (Image.MAX_IMAGE_PIXELS or 0)  # Pillow refuses from there on
    return width * height
