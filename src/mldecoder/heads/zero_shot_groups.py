"""Groups of words: several labels share one query, the paper's appendix *ZSL Group Decoder*.

Label i of the list that is scored belongs to group ``i // g`` and has place ``i % g`` in it; the last group may have
empty places. Its text vector enters twice: as a part of the group's query, and as the weights that read the answer.
What a label scores therefore depends on the other labels of its group.

Shapes: b batch, n labels, k groups, g labels a group, d width, e text width.
"""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mldecoder.errors import ConfigError, InputError

__all__ = [
    "CommonReadout",
    "LearnableReadout",
    "QueryKind",
    "Readout",
    "ReadoutKind",
    "SharedReadout",
    "TextReadout",
    "count_groups",
    "join_parts",
]

QueryKind = Literal["text", "learnable", "common"]
ReadoutKind = Literal["shared", "text", "learnable"]


def count_groups(num_labels: int, group_size: int) -> int:
    """How many groups so many labels fill; the last one may be partly empty."""
    return -(-num_labels // group_size)


def join_parts(parts: Tensor, group_size: int, width: int) -> Tensor:
    """The group queries ``q_k = concat(W_a N_i)``: ``(n, d // g) -> (k, d)``.

    Places without a label are zero, and so are the numbers that are left where g does not divide d.
    """
    num_labels, part = parts.shape
    groups = count_groups(num_labels, group_size)
    filled = F.pad(parts, (0, 0, 0, groups * group_size - num_labels))  # (k * g, d // g)
    return F.pad(filled.reshape(groups, group_size * part), (0, width - group_size * part))


class Readout(nn.Module, ABC):
    """Reads every label's logit off its group's answer."""

    @abstractmethod
    def forward(self, decoded: Tensor, text_vectors: Tensor, first_group: int = 0) -> Tensor:
        """Answers ``(b, k, d)`` of the groups of ``text_vectors`` ``(n, e)`` to logits ``(b, n)``."""


class SharedReadout(nn.Linear, Readout):
    """One layer for all groups, a column a place: with one label a group the paper's full decoding."""

    def __init__(self, width: int, group_size: int) -> None:
        nn.Linear.__init__(self, width, group_size)
        nn.init.xavier_normal_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, decoded: Tensor, text_vectors: Tensor, first_group: int = 0) -> Tensor:  # type: ignore[override]  # noqa: ARG002
        """Answers ``(b, k, d)`` to logits ``(b, n)``."""
        return nn.Linear.forward(self, decoded).flatten(1)[:, : len(text_vectors)]


class TextReadout(Readout):
    """Weights made of the words themselves: ``W_k = W_b M_k``, the paper's answer to unseen labels in groups.

    The bias, one number for all labels, is ours.
    """

    def __init__(self, text_width: int, width: int, group_size: int) -> None:
        super().__init__()
        self.group_size = group_size
        self.weight = nn.Parameter(torch.empty(width, text_width))
        self.bias = nn.Parameter(torch.zeros(1))
        # Logits begin at about 1 for vectors whose numbers have the mean square 1, and below for those of length 1.
        nn.init.normal_(self.weight, std=(width * text_width) ** -0.5)

    def forward(self, decoded: Tensor, text_vectors: Tensor, first_group: int = 0) -> Tensor:  # noqa: ARG002
        """Answers ``(b, k, d)`` to logits ``(b, n)``."""
        columns = F.linear(text_vectors, self.weight)  # (n, d)
        filled = F.pad(columns, (0, 0, 0, decoded.shape[1] * self.group_size - len(columns)))
        weights = filled.reshape(-1, self.group_size, filled.shape[1])  # (k, g, d)
        return torch.einsum("bkd,kgd->bkg", decoded, weights).flatten(1)[:, : len(columns)] + self.bias


class LearnableReadout(Readout):
    """A layer for each group, as for labels that are known beforehand; it says nothing about groups never trained."""

    def __init__(self, num_groups: int, width: int, group_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_groups, width, group_size))
        self.bias = nn.Parameter(torch.zeros(num_groups, group_size))
        nn.init.xavier_normal_(self.weight)

    def forward(self, decoded: Tensor, text_vectors: Tensor, first_group: int = 0) -> Tensor:
        """Answers ``(b, k, d)`` to logits ``(b, n)``."""
        own = slice(first_group, first_group + decoded.shape[1])
        logits = torch.einsum("bkd,kdg->bkg", decoded, self.weight[own]) + self.bias[own]
        return logits.flatten(1)[:, : len(text_vectors)]


class CommonReadout(Readout):
    """Weights made of the words, for queries that belong to no label: every label reads every answer.

    A label's logit is the soft maximum of its products with the answers, less that of equal ones. Words enter here
    and nowhere else, and linearly, so that a label made of known parts is scored by what its parts have learnt.
    """

    def __init__(self, text_width: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, text_width))
        self.bias = nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.weight, std=(width * text_width) ** -0.5)

    def scores(self, decoded: Tensor, text_vectors: Tensor) -> Tensor:
        """How much each answer speaks for each label: ``(b, k, n)``."""
        return decoded @ F.linear(text_vectors, self.weight).T

    def forward(self, decoded: Tensor, text_vectors: Tensor, first_group: int = 0) -> Tensor:  # noqa: ARG002
        """Answers ``(b, k, d)`` to logits ``(b, n)``."""
        scores = self.scores(decoded, text_vectors)
        exact = torch.promote_types(scores.dtype, torch.float32)
        return (scores.to(exact).logsumexp(dim=1) - math.log(decoded.shape[1]) + self.bias).to(decoded.dtype)


def make_readout(kind: ReadoutKind, text_width: int, width: int, group_size: int, num_groups: int | None) -> Readout:
    """The readout of that kind."""
    if kind == "shared":
        return SharedReadout(width, group_size)
    if kind == "text":
        return TextReadout(text_width, width, group_size)
    if kind == "learnable":
        return LearnableReadout(needed(num_groups), width, group_size)
    raise ConfigError(f"readout must be shared, text or learnable, got {kind!r}.")


def needed(num_groups: int | None) -> int:
    """The number of groups, where something is learnt for each of them."""
    if num_groups is None or num_groups < 1:
        raise ConfigError(
            f"num_groups must be at least 1 where queries or readout are learnable, got {num_groups}. "
            f"Pass the number of labels divided by group_size, rounded up."
        )
    return num_groups


def check_capacity(groups: int, num_groups: int | None, num_labels: int) -> None:
    """Refuse more groups than there are learnt queries or weights for."""
    if num_groups is not None and groups > num_groups:
        raise InputError(
            f"{num_labels} labels fill {groups} groups, but queries or weights were made for num_groups={num_groups}. "
            f"Score fewer labels at once, or build the head with a larger num_groups."
        )
