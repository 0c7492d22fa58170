"""The module that goes into a file: a model, and around it what the user wants inside.

Shapes: b batch, h and w height and width, c channels, n labels, e text width.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from mldecoder.data.transforms import normalise
from mldecoder.export.options import Options
from mldecoder.model import Classifier

__all__ = ["Exportable", "own_copy"]


class Exportable(nn.Module):
    """A model with preprocessing and probabilities inside, or without.

    In half precision only what lies between is half: pictures are normalised in float32, and the result is float32.

    Args:
        model: The model; it is not changed.
        options: What is inside.
    """

    def __init__(self, model: Classifier, options: Options) -> None:
        super().__init__()
        self.half_inside = options.precision == "float16" and options.format != "openvino"
        self.model = model.half() if self.half_inside else model
        self.preprocessing, self.probabilities = options.preprocessing, options.probabilities

    def forward(self, images: Tensor, text_vectors: Tensor | None = None) -> Tensor:
        """Pictures to logits or probabilities ``(b, n)``.

        Args:
            images: float32 ``(b, c, h, w)``, preprocessed; or uint8 ``(b, h, w, c)``.
            text_vectors: ``(n, e)``, for a zero-shot model.
        """
        config = self.model.config
        if self.preprocessing:
            images = normalise(images.permute(0, 3, 1, 2), config.preprocessing)
        if self.half_inside:
            images = images.half()
            text_vectors = None if text_vectors is None else text_vectors.half()
        logits = self.model(images) if text_vectors is None else self._of_words(images, text_vectors)
        logits = logits.float()
        if not self.probabilities:
            return logits
        values = logits / (config.temperature or 1.0) + (config.bias or 0.0)
        return values.softmax(dim=1) if config.task == "single-label" else values.sigmoid()

    def _of_words(self, images: Tensor, text_vectors: Tensor) -> Tensor:
        """Logits of a zero-shot model.

        Groups are filled with zeros here, as the head would do: it counts groups by dividing a negative number, which
        ONNX rounds the other way than Python.
        """
        logits: Tensor
        group, count = getattr(self.model.config.head, "group_size", 1), text_vectors.shape[0]
        if group == 1:
            logits = self.model(images, text_vectors)
            return logits
        padded = torch.cat([text_vectors, text_vectors.new_zeros(group - 1, text_vectors.shape[1])])
        whole = torch.arange((count + group - 1) // group * group, device=padded.device)
        logits = self.model(images, padded.index_select(0, whole))
        return logits[:, :count]


def own_copy(model: Classifier) -> Classifier:
    """A copy on the CPU in float32, in evaluation mode, that may be changed."""
    return deepcopy(model).cpu().float().eval()
