"""The heads that are measured against each other: ours by name, others by import path."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import nn

from mldecoder.bench.settings import BenchSettings
from mldecoder.errors import ConfigError
from mldecoder.heads import GlobalAveragePool, MLDecoder, TransformerDecoder

__all__ = ["Contender", "contenders", "find_peer"]


@dataclass(frozen=True)
class Contender:
    """A head at one size.

    Attributes:
        name: What the table calls it.
        classes: N.
        queries: K, or None where the head takes none.
        peer: Whether it comes from outside.
        make: Builds it, on torch's default device.
    """

    name: str
    classes: int
    queries: int | None
    peer: bool
    make: Callable[[], nn.Module]

    def build(self, device: torch.device) -> nn.Module:
        """The head on a device; ours are also initialised there, which is faster for many classes."""
        if self.peer and device.type != "meta":  # a peer may mix devices while it is built
            return self.make().to(device)
        with device:
            return self.make().to(device)

    def __str__(self) -> str:
        queries = f", {self.queries:,} queries" if self.queries else ""
        return f"{self.name}, {self.classes:,} classes{queries}"


def contenders(settings: BenchSettings, classes: int, in_features: int) -> list[Contender]:
    """Every head of the settings at a number of classes, in the order in which they were named."""
    result = []
    counts = list(dict.fromkeys(min(k, classes) for k in settings.queries))
    for name in settings.heads:
        if name == "gap":
            result.append(Contender(name, classes, None, False, lambda: GlobalAveragePool(classes, in_features)))
        elif name == "transformer-decoder":
            result.append(
                Contender(name, classes, classes, False, _transformer_decoder(settings, classes, in_features))
            )
        else:
            result += [
                Contender(name, classes, k, False, _ml_decoder(settings, classes, in_features, k)) for k in counts
            ]
    for path in settings.peers:
        peer = find_peer(path)
        takes_queries = "num_queries" in _parameters(peer)
        for k in counts if takes_queries else [None]:
            result.append(Contender(path, classes, k, True, _peer(settings, peer, classes, in_features, k)))
    return result


def find_peer(path: str) -> Callable[..., nn.Module]:
    """The class, or function that builds a head, behind ``module:Class``."""
    module, _, attribute = path.partition(":")
    try:
        found: object = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"The peer {path!r} cannot be imported ({what}). Check the name and PYTHONPATH.") from error
    if not callable(found):
        raise ConfigError(f"The peer {path!r} must be a class that builds a head, got {type(found).__name__}.")
    return found


def _ml_decoder(settings: BenchSettings, classes: int, in_features: int, queries: int) -> Callable[[], nn.Module]:
    return lambda: MLDecoder(
        classes, in_features, num_queries=queries, width=settings.width, ff_width=settings.ff_width
    )


def _transformer_decoder(settings: BenchSettings, classes: int, in_features: int) -> Callable[[], nn.Module]:
    return lambda: TransformerDecoder(classes, in_features, width=settings.width, ff_width=settings.ff_width)


def _peer(
    settings: BenchSettings, peer: Callable[..., nn.Module], classes: int, in_features: int, queries: int | None
) -> Callable[[], nn.Module]:
    names = _parameters(peer)
    wishes = {"num_queries": queries, "width": settings.width, "ff_width": settings.ff_width}
    options = {name: value for name, value in wishes.items() if name in names}
    return lambda: peer(classes, in_features, **options)


def _parameters(peer: Callable[..., nn.Module]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(peer).parameters)
    except ValueError:  # a class of C
        return frozenset()
