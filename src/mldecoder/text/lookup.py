"""Word vectors as a text encoder: a text is the mean of its words' vectors, and every replaced word is told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from mldecoder.errors import ConfigError
from mldecoder.text.spelling import split_compound
from mldecoder.text.vectors import WordTable
from mldecoder.text.words import chunks, number_forms, pieces, spellings, whole_names, without_accents

__all__ = ["OOV", "WordEncoder", "Wording", "check_oov"]

OOV = Literal["nearest", "parts", "error"]
_HOW = Literal["", "other number", "nearest spelling", "parts", "unknown"]


@dataclass(frozen=True)
class Wording:
    """What one word of a text was looked up as.

    Args:
        word: The word as the text has it.
        entries: The entries of the file whose vectors stand for it; none for an unknown word.
        how: Why the entries are not simply the word; empty when they are.
    """

    word: str
    entries: tuple[str, ...]
    how: _HOW = ""

    def __str__(self) -> str:
        if not self.entries:
            return f"{self.word!r} is unknown"
        found = " + ".join(self.entries)
        return f"{found} ({self.how} of {self.word!r})" if self.how else found


_NO_WORD = Wording("", (), "unknown")


@dataclass(frozen=True, eq=False)
class WordEncoder:
    """Turns a text into the mean of its words' vectors.

    A text that the file has as one entry ("traffic light", "traffic_light", "traffic-light") gets that entry's
    vector. Else each word is looked up: as it is in any case, in the other number (birds, bird), cut at hyphens,
    CamelCase and digits. What is still unknown goes by ``oov``. All words weigh the same, "a" and "of" too.

    Args:
        name: The encoder's name, as ``mldecoder.text.encoder`` reads it.
        table: Words and vectors.
        oov: For a word that is not in the table: "nearest", the nearest spelling with the same first letter, else its
            parts; "parts", the known words it is made of (firetruck: fire, truck); "error", none.
        stamp: Changes when the file does; part of the disk cache's key.
    """

    name: str
    table: WordTable
    oov: OOV = "nearest"
    stamp: str = ""
    _known: dict[str, list[Wording]] = field(default_factory=dict, repr=False)

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return int(self.table.vectors.shape[1])

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Mean of each text's word vectors: n texts -> ``(n, width)`` float32."""
        self._refuse_unknown(texts)
        entries: list[int] = []
        starts: list[int] = []
        for text in texts:
            wordings = self.look_up(text)
            starts.append(len(entries))
            entries += [self.table.rows[entry] for wording in wordings for entry in wording.entries]
        if not texts:
            return torch.empty(0, self.width)
        sums = np.add.reduceat(self.table.vectors[entries].astype(np.float64), starts, axis=0)
        counts = np.diff([*starts, len(entries)])[:, None]
        return torch.from_numpy((sums / counts).astype(np.float32))

    def look_up(self, text: str) -> list[Wording]:
        """What each word of the text is taken for, in order; unknown words are in it without entries."""
        if text not in self._known:
            self._known[text] = self._whole(text) or [part for chunk in chunks(text) for part in self._chunk(chunk)]
        return self._known[text]

    def _refuse_unknown(self, texts: Sequence[str]) -> None:
        """Say in one line which word of which text is unknown, and what can be done."""
        bad = [text for text in texts if not all(wording.entries for wording in self.look_up(text) or [_NO_WORD])]
        if not bad:
            return
        text, more = bad[0], f" The same goes for {len(bad) - 1} more, as {bad[1]!r}." if len(bad) > 1 else ""
        unknown = [wording.word for wording in self.look_up(text) if not wording.entries]
        if not unknown:
            raise ConfigError(f"a label must have a letter or digit, got {text!r}. Give it another name.{more}")
        near = self.table.speller.nearest(unknown[0])
        hint = f"the nearest known is {near!r}. Mend the label or use" if near else "nothing is spelt like it. Use"
        way_out = "oov='nearest', " if self.oov != "nearest" and near else ""
        raise ConfigError(
            f"the label {text!r} must be made of words that {self.name} knows, got {unknown[0]!r}; {hint} "
            f"{way_out}an encoder of whole texts such as 'minilm', or describe it: "
            f"descriptions={{{text!r}: ['...']}}.{more}"
        )

    def _whole(self, text: str) -> list[Wording]:
        """The text as one entry; a text without a letter or digit is none, though files have "," and "-"."""
        if not chunks(text):
            return []
        names = list(whole_names(text))
        for name in names:
            if name in self.table.rows:
                return [Wording(text, (name,))]
        for form in (form for name in dict.fromkeys(map(str.lower, names)) for form in number_forms(name)):
            if form in self.table.rows:
                return [Wording(text, (form,), "other number")]
        return []

    def _chunk(self, chunk: str) -> list[Wording]:
        """The chunk as one word, or as its pieces, or by the rule for unknown words."""
        if found := self._word(chunk):
            return [found]
        smaller = pieces(chunk)
        if smaller != [chunk]:
            return [part for piece in smaller for part in self._chunk(piece)]
        return [self._replaced(chunk)]

    def _word(self, word: str) -> Wording | None:
        for spelling in spellings(word):
            if spelling in self.table.rows:
                return Wording(word, (spelling,))
        for form in number_forms(word):
            if form in self.table.rows:
                return Wording(word, (form,), "other number")
        return None

    def _replaced(self, word: str) -> Wording:
        plain = without_accents(word).lower()
        if self.oov == "nearest" and (near := self.table.speller.nearest(plain)):
            return Wording(word, (near,), "nearest spelling")
        if self.oov != "error" and (parts := split_compound(plain, self.table.rows.get)):
            return Wording(word, tuple(parts), "parts")
        return Wording(word, (), "unknown")


def check_oov(oov: str) -> None:
    """Refuse anything but the three rules."""
    if oov not in get_args(OOV):
        raise ConfigError(f"oov must be one of {', '.join(map(repr, get_args(OOV)))}, got {oov!r}.")
