"""Text encoders by name, as recipes and saved models write them."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mldecoder.errors import ConfigError, InputError, unknown_name
from mldecoder.text.lookup import OOV, WordEncoder
from mldecoder.text.towers import Tower, minilm, open_clip_tower, sentence_transformer, transformers_tower
from mldecoder.text.vectors import glove_50, read_words

__all__ = ["ENCODERS", "AnyEncoder", "Joined", "TextEncoder", "encoder", "parts", "with_oov"]


@runtime_checkable
class TextEncoder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """What is saved with a model, and what ``encoder`` builds the same encoder from."""

    @property
    def width(self) -> int:
        """How many numbers a vector has."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """A vector for each text: n texts -> ``(n, width)`` float32."""


AnyEncoder = str | TextEncoder | Callable[[Sequence[str]], Tensor]


@dataclass(frozen=True, eq=False)
class Joined:
    """Encoders side by side: their vectors, each scaled to length 1, one behind the other."""

    encoders: tuple[TextEncoder, ...]

    @property
    def name(self) -> str:
        """The names, with a plus between them."""
        return "+".join(one.name for one in self.encoders)

    @property
    def width(self) -> int:
        """The sum of the widths."""
        return sum(one.width for one in self.encoders)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """A vector for each text: n texts -> ``(n, width)`` float32."""
        return torch.cat([normalize(one.encode(texts), dim=1) for one in self.encoders], dim=1)


@dataclass(frozen=True, eq=False)
class Function:
    """Any callable as an encoder; it cannot be rebuilt from its name, only be recognised by it."""

    function: Callable[[Sequence[str]], Tensor]

    @property
    def name(self) -> str:
        """``function:`` and where the function is defined."""
        kind = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        return f"function:{kind.__module__}.{kind.__qualname__}"

    @cached_property
    def width(self) -> int:
        """How many numbers a vector has, from encoding one word."""
        return self.encode(["text"]).shape[1]

    def encode(self, texts: Sequence[str]) -> Tensor:
        """A vector for each text: n texts -> ``(n, width)`` float32."""
        vectors = self.function(texts)
        if not isinstance(vectors, Tensor) or vectors.ndim != 2 or len(vectors) != len(texts):
            got = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors).__name__
            raise InputError(f"{self.name} must return a tensor ({len(texts)}, width) for so many texts, got {got}.")
        return vectors.detach().float().cpu()


def _words(path: str) -> TextEncoder:
    table = read_words(Path(path))
    stat = Path(path).expanduser().stat()
    return WordEncoder(f"words:{path}", table, stamp=f"{stat.st_size} {stat.st_mtime_ns}")


def _function(where: str) -> TextEncoder:
    raise ConfigError(
        f"the text encoder 'function:{where}' was a function of the program that made the model, and is not "
        "saved with it. Pass the function itself as encoder=."
    )


# Name, or prefix with a colon, to what builds the encoder from the rest of the name. Add your own here.
ENCODERS: dict[str, Callable[[str], TextEncoder]] = {
    "glove-50": lambda _: WordEncoder("glove-50", glove_50()),
    "minilm": lambda _: minilm(),
    "words:": _words,
    "sentence-transformers:": sentence_transformer,
    "open_clip:": open_clip_tower,
    "transformers:": transformers_tower,
    "function:": _function,
}


def encoder(name: AnyEncoder) -> TextEncoder:
    """Return the text encoder of that name; what it loads is kept, so that asking again costs nothing.

    Args:
        name: ``glove-50`` and ``minilm`` need no download. ``words:PATH`` reads GloVe, fastText or word2vec files
            (.txt, .vec, .bin, .npz); ``sentence-transformers:NAME``, ``open_clip:MODEL/PRETRAINED`` and
            ``transformers:NAME`` take any model of those libraries, or a folder. ``a+b`` joins two encoders' vectors,
            each first scaled to length 1. An encoder is taken as it is, a function from texts to a tensor
            ``(n, width)`` is wrapped.

    Example:
        >>> encoder("glove-50").encode(["traffic light"]).shape
        torch.Size([1, 50])
    """
    if not isinstance(name, str):
        if isinstance(name, Tower | Joined | TextEncoder):  # asking the protocol for a width would load a tower
            return name
        if callable(name):
            return Function(name)
        raise ConfigError(f"encoder must be a name, an encoder or a function, got {type(name).__name__}.")
    # A plus joins only before a known name: paths may have one of their own.
    known = "|".join(re.escape(key) + ("" if key.endswith(":") else r"(?=\+|$)") for key in ENCODERS)
    names = re.split(rf"\+(?={known})", name)
    found = tuple(_one(one) for one in names)
    return found[0] if len(found) == 1 else Joined(found)


def _one(name: str) -> TextEncoder:
    prefix, colon, rest = name.partition(":")
    build = ENCODERS.get(prefix + colon)
    if build is None or (colon and not rest):
        shown = [key + "..." if key.endswith(":") else key for key in ENCODERS if key != "function:"]
        raise unknown_name("a text encoder must be one of", name, shown)
    return build(rest)


def parts(found: TextEncoder) -> Iterator[TextEncoder]:
    """The encoders that it is joined from; itself when it is one."""
    if isinstance(found, Joined):
        for one in found.encoders:
            yield from parts(one)
    else:
        yield found


def with_oov(found: TextEncoder, oov: OOV) -> TextEncoder:
    """The same encoder with another rule for unknown words; towers know no unknown words."""
    if isinstance(found, Joined):
        return Joined(tuple(with_oov(one, oov) for one in found.encoders))
    return dataclasses.replace(found, oov=oov, _known={}) if isinstance(found, WordEncoder) else found
