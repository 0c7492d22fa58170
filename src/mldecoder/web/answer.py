"""From a picture to what the page shows: tags, and where the model looked. Nothing here knows the page.

Shapes: none; a picture comes as the bytes of its file.
"""

import base64
import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from PIL import Image

from mldecoder import text
from mldecoder.data.decode import decode
from mldecoder.errors import ConfigError, DataError
from mldecoder.explain import Explainer
from mldecoder.model import Classifier
from mldecoder.predict import Prediction, Predictor
from mldecoder.web.limits import MAX_PIXELS, MAX_UPLOAD, check_file, check_pixels, parse_size

__all__ = ["Answer", "Answerer", "Map", "preview", "read_words"]

_MOST_WORDS, _LONGEST_WORD = 200, 100
_SHOWN = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM")  # how files begin that browsers show
_PREVIEW = 1024


@dataclass(frozen=True, eq=False)
class Answer:
    """What a model says about one picture; ``notes`` tell which words were read as others."""

    prediction: Prediction
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: tags, and every label's score and threshold."""
        plain = self.prediction.to_dict(all_scores=True)
        del plain["path"]  # the picture came without one
        thresholds = [round(float(value), 6) for value in self.prediction.thresholds]
        plain["thresholds"] = dict(zip(self.prediction.labels, thresholds, strict=True))
        return plain | ({"notes": list(self.notes)} if self.notes else {})


@dataclass(frozen=True)
class Map:
    """Where the model looked for a label: an address that holds the whole picture, and what to know about it."""

    address: str
    caption: str


class Answerer:
    """A model that answers one question at a time, whoever asks.

    Args:
        model: Any model of this package.
        max_bytes: Files that are larger are refused.
        max_pixels: Pictures that are larger are refused, before they are decoded.
    """

    def __init__(
        self, model: Classifier, *, max_bytes: int = parse_size(MAX_UPLOAD), max_pixels: int = MAX_PIXELS
    ) -> None:
        self.model = model.eval()
        self.max_bytes, self.max_pixels = max_bytes, max_pixels
        self._lock = threading.Lock()  # one large picture at a time in memory; more would not be faster
        self._own = Predictor(model)
        self._asking = lru_cache(maxsize=8)(self._explainer)  # the same words are asked of many pictures

    def tags(self, content: bytes, words: Sequence[str] = ()) -> Answer:
        """Tag a picture, with the model's labels or, where it is zero-shot, with any words.

        Raises:
            MLDecoderError: with one line for the person who sent it.
        """
        with self._lock:
            self._check(content)
            predictor = self._asking(tuple(words)).predictor if words else self._own
            try:
                [prediction] = predictor(content)
            except DataError as error:
                raise _named(error) from None
            return Answer(prediction, self._notes(words))

    def maps(self, content: bytes, labels: Sequence[str], words: Sequence[str] = ()) -> dict[str, Map]:
        """Where the model looked for some of the labels that were scored."""
        known = set(words or self.model.labels)
        unknown = [label for label in labels if label not in known]
        if unknown:
            raise ConfigError(f"{unknown[0]!r} was not scored. Ask for it first.")
        if not labels:
            return {}
        with self._lock:
            self._check(content)
            # words may share a query, so that a map depends on all words asked for; labels do not
            whole = words or (self.model.labels if self.model.zero_shot else ())
            explainer = self._asking(tuple(whole)) if whole else Explainer(self.model, labels=labels)
            try:
                explanation = explainer(content)
            except DataError as error:
                raise _named(error) from None
            attention = explanation.kind == "attention"
            made = {}
            for label in labels:
                caption = ["Where the model looked" if attention else "What each place adds to the score"]
                shared = explanation[label].shared_by
                if len(shared) > 1:
                    caption.append(f"one map for {len(shared)} labels, which share a query")
                made[label] = Map(_address(explanation.overlay(label)), "; ".join(caption))
            return made

    def _explainer(self, words: tuple[str, ...]) -> Explainer:
        return Explainer(self.model, labels=words)

    def _check(self, content: bytes) -> None:
        check_file(len(content), self.max_bytes)
        check_pixels(content, self.max_pixels)

    def _notes(self, words: Sequence[str]) -> tuple[str, ...]:
        """Words that the text encoder does not have, and what stands for them."""
        own = self.model.words
        new = [word for word in words if word not in set(self.model.labels)]
        if own is None or not new:
            return ()
        notes = []
        for one in text.parts(text.encoder(own.encoder)):
            if isinstance(one, text.WordEncoder):
                found = replace(one, oov=own.config.oov)
                notes += [str(wording) for word in new for wording in found.look_up(word) if wording.how]
        return tuple(dict.fromkeys(notes))


def read_words(given: str) -> tuple[str, ...]:
    """Words separated by commas or lines, each once.

    Example:
        >>> read_words("dog,  red car,\\n dog,")
        ('dog', 'red car')
    """
    words = tuple(dict.fromkeys(" ".join(word.split()) for line in given.splitlines() for word in line.split(",")))
    words = tuple(word for word in words if word)
    if len(words) > _MOST_WORDS:
        raise ConfigError(f"The page scores at most {_MOST_WORDS} words at a time, got {len(words)}. Ask for fewer.")
    long = [word for word in words if len(word) > _LONGEST_WORD]
    if long:
        raise ConfigError(
            f"A word or phrase must have at most {_LONGEST_WORD} letters, got {len(long[0])}. Put commas between them."
        )
    return words


def preview(content: bytes) -> Image.Image | None:
    """The picture itself where browsers do not show its file (TIFF, JPEG 2000, ...), else nothing."""
    if content.startswith(_SHOWN) or content[8:12] in (b"WEBP", b"avif"):
        return None
    picture = decode(content)
    picture.thumbnail((_PREVIEW, _PREVIEW))
    return picture


def _named(error: DataError) -> DataError:
    """The same without a name: the picture has none that its sender would know."""
    reason = str(error).partition(": ")[2].removesuffix(". Mend it or leave it out.") or str(error)
    return DataError(f"This file cannot be shown to the model: {reason}.")


def _address(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=88)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
