"""Labels to vectors: prompts, averaging, the report of what was looked up, and the disk cache around it.

Shapes: n labels, p prompts of all labels together, w width of the encoder.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mldecoder.errors import ConfigError, InputError
from mldecoder.text.cache import cache_folder, kept
from mldecoder.text.encoders import AnyEncoder, Function, TextEncoder, parts, with_oov
from mldecoder.text.encoders import encoder as find_encoder
from mldecoder.text.lookup import OOV, WordEncoder, check_oov
from mldecoder.text.towers import Tower

__all__ = ["encode_labels", "explain_labels"]

_log = logging.getLogger(__name__)
_SHOWN = 10  # replaced words, or labels alike, in one line
_ALIKE = 1e-5  # a tower gives the same text in another batch another last digit


def encode_labels(
    labels: Sequence[str],
    encoder: AnyEncoder = "glove-50",
    *,
    templates: Sequence[str] = ("{}",),
    descriptions: Mapping[str, Sequence[str]] | None = None,
    oov: OOV = "nearest",
    normalise: bool = True,
    cache: Path | bool | None = None,
) -> Tensor:
    """Turn label names into vectors: n labels -> ``(n, width)`` float32, in the order of the labels.

    A label with one prompt gets that prompt's vector. With several (templates, descriptions) each vector is scaled to
    length 1 and the mean is taken.

    Word vectors take the mean over all words of a prompt, and "a", "photo" and "of" are words: "a photo of a {}"
    draws all labels towards one point. Leave the template alone there; templates are for towers.

    Args:
        labels: The names; "traffic light", "traffic_light" and "TrafficLight" are the same to word vectors.
        encoder: A name (see ``encoder``), an encoder, or a function from texts to a tensor.
        templates: Prompts with ``{}`` where the label goes.
        descriptions: For some labels, texts that are encoded instead of the templates. ``{}`` in one is the label;
            the description "{}" keeps the bare name among them.
        oov: What word vectors do with a word they do not have: "nearest", the nearest spelling with the same first
            letter, else its parts; "parts", the known words it is made of; "error", refuse. What was replaced is
            logged, and ``explain_labels`` shows it.
        normalise: Scale every result to length 1.
        cache: A folder, True for the user's cache folder, False for none. By default only what a text tower has read
            is kept: word vectors are faster than the disk.

    Example:
        >>> encode_labels(["dog", "traffic light"]).shape
        torch.Size([2, 50])
    """
    check_oov(oov)
    prompts = _prompts(labels, templates, descriptions or {})
    found = with_oov(find_encoder(encoder), oov)
    texts = [text for group in prompts for text in group]
    _report(found, texts)
    counts = [len(group) for group in prompts]
    folder = _folder(found, cache)
    if not labels:
        return torch.empty(0, found.width)
    if folder is None:
        vectors = _mean(found, texts, counts)
    else:
        stamps = [getattr(one, "stamp", "") for one in parts(found)]
        key = [found.name, stamps, oov, list(labels), prompts]
        vectors = kept(folder, key, len(labels), lambda: _mean(found, texts, counts))
    if normalise:
        vectors = normalize(vectors, dim=1)
    _warn_of_equals(labels, vectors)
    return vectors


def explain_labels(
    labels: Sequence[str], encoder: AnyEncoder = "glove-50", *, oov: OOV = "nearest"
) -> list[tuple[str, str]]:
    """Say for each label what is looked up for it; unknown words are told, not refused.

    Example:
        >>> explain_labels(["traffic light", "frisbeee"])
        [('traffic light', 'traffic + light'), ('frisbeee', "frisbee (nearest spelling of 'frisbeee')")]
    """
    check_oov(oov)
    encoders = list(parts(with_oov(find_encoder(encoder), oov)))
    rows = []
    for label in labels:
        told = [_explained(one, label) for one in encoders]
        if len(told) > 1:
            told = [f"{one.name}: {line}" for one, line in zip(encoders, told, strict=True)]
        rows.append((label, "; ".join(told)))
    return rows


def _explained(found: TextEncoder, label: str) -> str:
    if not isinstance(found, WordEncoder):
        return f"the text {label!r}"
    return " + ".join(map(str, found.look_up(label))) or "no word"


def _prompts(
    labels: Sequence[str], templates: Sequence[str], descriptions: Mapping[str, Sequence[str]]
) -> list[list[str]]:
    """The texts of each label."""
    if isinstance(labels, str) or isinstance(templates, str):
        raise ConfigError("labels and templates must be lists of texts, got one text. Put it in a list.")
    empty = [i for i, label in enumerate(labels) if not isinstance(label, str) or not label.strip()]
    if empty:
        raise ConfigError(f"labels must be texts with a letter or digit, got {labels[empty[0]]!r} at {empty[0]}.")
    wrong = [template for template in templates if "{}" not in template]
    if wrong or not templates:
        raise ConfigError(f"templates must be texts with {{}} for the label, got {wrong[0] if wrong else 'none'!r}.")
    unused = sorted(set(descriptions) - set(labels))
    if unused and len(unused) == len(descriptions):
        raise ConfigError(f"descriptions must be of labels in the list, got only others, as {unused[0]!r}.")
    if unused:
        _log.info("%d descriptions are of no label in the list: %s.", len(unused), _listed(unused))
    prompts = []
    for label in labels:
        chosen = descriptions.get(label, templates)
        if isinstance(chosen, str) or not chosen or not all(isinstance(text, str) and text.strip() for text in chosen):
            raise ConfigError(f"descriptions of {label!r} must be a list of texts, got {chosen!r}.")
        prompts.append([text.replace("{}", label) for text in chosen])
    return prompts


def _mean(found: TextEncoder, texts: Sequence[str], counts: Sequence[int]) -> Tensor:
    """Vectors of the labels: p texts, of which each label has so many -> ``(n, w)``."""
    vectors = found.encode(texts)  # (p, w)
    if vectors.shape != (len(texts), found.width) or not vectors.isfinite().all():
        raise InputError(
            f"the text encoder {found.name!r} must give finite vectors ({len(texts)}, {found.width}), "
            f"got {tuple(vectors.shape)}{'' if vectors.isfinite().all() else ' with other numbers'}."
        )
    if all(count == 1 for count in counts):
        return vectors
    group = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))  # (p,): the label of each text
    several = torch.tensor(counts)[group].unsqueeze(1) > 1
    vectors = torch.where(several, normalize(vectors, dim=1), vectors)
    sums = torch.zeros(len(counts), vectors.shape[1]).index_add_(0, group, vectors)
    return sums / torch.tensor(counts).unsqueeze(1)


def _folder(found: TextEncoder, cache: Path | bool | None) -> Path | None:
    if cache is None:
        cache = any(isinstance(one, Tower) for one in parts(found))
        cache = cache and not any(isinstance(one, Function) for one in parts(found))
    if cache is False:
        return None
    if any(isinstance(one, Function) for one in parts(found)):
        raise ConfigError(f"cache needs an encoder with a name of its own, got {found.name!r}. Leave cache out.")
    return cache_folder() if cache is True else Path(cache)


def _report(found: TextEncoder, texts: Sequence[str]) -> None:
    """Log which words are not in the files and what stands for them, one line for each encoder."""
    for one in parts(found):
        if isinstance(one, WordEncoder):
            wordings = {wording: None for text in texts for wording in one.look_up(text) if wording.how}
            for level, hows in (
                (logging.WARNING, ("nearest spelling", "parts")),
                (logging.INFO, ("other number",)),
            ):
                told = [str(wording) for wording in wordings if wording.how in hows]
                if told:
                    _log.log(level, "%d words are not in %s: %s.", len(told), one.name, _listed(told))


def _warn_of_equals(labels: Sequence[str], vectors: Tensor) -> None:
    """Log labels with equal vectors: a model cannot tell them apart."""
    width = vectors.shape[1]
    line = vectors.double() @ torch.cos(torch.arange(1, width + 1, dtype=torch.float64))  # equal ones meet on any line
    order = line.argsort(stable=True)
    nearby = (vectors[order[1:]] - vectors[order[:-1]]).abs().amax(dim=1) <= _ALIKE
    pairs = [(int(order[i]), int(order[i + 1])) for i in nearby.nonzero().flatten().tolist()]
    if pairs:
        told = [" and ".join(repr(labels[i]) for i in sorted(pair)) for pair in pairs]
        _log.warning("labels with equal vectors, which no model can tell apart: %s.", _listed(told))


def _listed(told: Sequence[str]) -> str:
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return ", ".join(told[:_SHOWN]) + more
