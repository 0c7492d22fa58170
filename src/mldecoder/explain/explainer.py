"""From a picture to where the model looked."""

from collections.abc import Sequence

import torch

from mldecoder.errors import DataError, InputError
from mldecoder.explain.explanation import Explanation, LabelMap
from mldecoder.explain.geometry import seen_box
from mldecoder.explain.maps import look
from mldecoder.model import Classifier
from mldecoder.predict import Picture, Predictor, Source
from mldecoder.predict.inputs import sources
from mldecoder.predict.predictor import evaluating

__all__ = ["Explainer"]


class Explainer:
    """A model ready to say where it looks.

    Args:
        model: With any head of this package.
        labels: Whose maps to show; ``None`` takes those that are predicted, or the best one where none is.
        top_k: At most this many labels a picture.
        threshold: As for :class:`mldecoder.predict.Predictor`.

    Example:
        >>> model = mld.create_model("test_resnet", labels=["cat", "dog"])
        >>> Explainer(model, labels=["dog"])(np.zeros((64, 64, 3), np.uint8)).maps[0].map.shape
        (2, 2)
    """

    def __init__(
        self,
        model: Classifier,
        *,
        labels: Sequence[str] | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
    ) -> None:
        self.model = model
        self.wished = labels is not None
        self.top_k = top_k
        self.predictor = Predictor(model, labels=labels, threshold=threshold)

    def __call__(self, image: Picture | Source) -> Explanation:
        """Explain one picture."""
        given = [image] if isinstance(image, Source) else list(sources(image))
        if len(given) != 1:
            raise InputError(f"explain takes one picture at a time, got {len(given)}. Call it for each.")
        source, predictor = given[0], self.predictor
        try:
            picture = source.read()
        except DataError as error:
            raise DataError(f"{source.name}: {error}") from None
        with torch.inference_mode(), evaluating(self.model):
            prepared = predictor.normalised(predictor.transform(picture).unsqueeze(0))
            maps = look(self.model, prepared, predictor.text_vectors)
            scores = predictor.from_logits(maps.logits)[0].numpy()
        columns = predictor.columns  # of the labels asked for, among all logits
        everything = self.model.labels if predictor.text_vectors is None else predictor.labels
        made = []
        for i in self._chosen(scores.tolist()):
            place = i if columns is None else int(columns[i])
            made.append(
                LabelMap(
                    label=predictor.labels[i],
                    score=float(scores[i]),
                    threshold=float(predictor.thresholds[i]),
                    heads=maps.of(0, place).double().cpu().numpy(),
                    shared_by=tuple(everything[j] for j in maps.shared_by(place)),
                )
            )
        box = seen_box(*picture.size, self.model.config.preprocessing)
        return Explanation(source.name, picture, tuple(made), maps.kind, box)

    def _chosen(self, scores: list[float]) -> list[int]:
        """Numbers of the labels to show, best first."""
        best = sorted(range(len(scores)), key=lambda i: -scores[i])
        if not self.wished:
            single = self.predictor.single
            there = best[:1] if single else [i for i in best if scores[i] >= self.predictor.thresholds[i]]
            best = there or best[:1]
        return best[: self.top_k]
