"""Open Images scored in every plausible way, side by side.

Open Images is partly labelled: of a picture's 9,600 labels people looked at a few. The paper reports 86.8 mAP and does
not say which entries count; the authors' own file was measured at 28 by others. These are the readings, each by name.

Shapes: n pictures, k classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mldecoder.errors import InputError
from mldecoder.metrics import average_precision

__all__ = ["Protocol", "protocols"]


@dataclass(frozen=True)
class Protocol:
    """A way to score: what it is called, what counts in it, and what comes out in percent over how many classes."""

    name: str
    counts: str
    value: float
    classes: int


def protocols(
    scores: Tensor, targets: Tensor, *, verified: Tensor | None = None, at_least: Sequence[int] = (5, 25, 100)
) -> list[Protocol]:
    """Mean average precision by every protocol.

    Args:
        scores: Logits or probabilities (n, k).
        targets: 1, 0, or -1 for unknown (n, k).
        verified: The same with what people verified alone, where ``targets`` holds labels of machines too.
        at_least: Numbers of positives that a class must have to count.

    Example:
        >>> scores, targets = torch.tensor([[0.9], [0.8], [0.7]]), torch.tensor([[-1], [1], [0]])
        >>> [(one.name, round(one.value)) for one in protocols(scores, targets)[:2]]
        [('unknown = negative', 50), ('unknown left out', 100)]
    """
    if verified is not None and verified.shape != targets.shape:
        shapes = f"{tuple(targets.shape)}, got {tuple(verified.shape)}"
        raise InputError(f"verified must have the shape of the targets {shapes}.")
    people = targets if verified is None else verified
    as_negative = average_precision(scores, targets.clamp(min=0))
    left_out = average_precision(scores, targets)
    by_people = left_out if verified is None else average_precision(scores, people)
    positives = (targets == 1).sum(dim=0)
    judged = ((people == 1).any(dim=0)) & ((people == 0).any(dim=0))
    found = [
        _mean(
            "unknown = negative",
            "every label nobody spoke of is absent; classes with a positive",
            as_negative,
            positives > 0,
        ),
        _mean("unknown left out", "only labels somebody spoke of; classes with a positive", left_out, positives > 0),
        _mean(
            "verified only",
            "only labels that people verified; classes with a verified positive and a verified negative, since "
            "without a negative every order is perfect",
            by_people,
            judged,
        ),
    ]
    for least in at_least:
        enough = positives >= least
        found.append(
            _mean(
                f"unknown = negative, {least} positives",
                f"as the first, classes with {least} positives or more",
                as_negative,
                enough,
            )
        )
        found.append(
            _mean(
                f"unknown left out, {least} positives",
                f"as the second, classes with {least} positives or more",
                left_out,
                enough,
            )
        )
    return [*found, _pooled(scores, targets)]


def _mean(name: str, counts: str, values: Tensor, classes: Tensor) -> Protocol:
    chosen = values[classes & ~values.isnan()]
    value = 100 * float(chosen.mean()) if len(chosen) else float("nan")
    return Protocol(name, counts, value, len(chosen))


def _pooled(scores: Tensor, targets: Tensor) -> Protocol:
    """All entries that somebody spoke of in one ranking, over all classes at once."""
    known = targets >= 0
    value = average_precision(scores[known].unsqueeze(1), targets[known].unsqueeze(1))[0]
    return Protocol(
        "unknown left out, pooled",
        "all labels somebody spoke of, in one ranking over all classes",
        100 * float(value),
        int((targets == 1).any(dim=0).sum()) if not torch.isnan(value) else 0,
    )
