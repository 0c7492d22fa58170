"""The largest of many values, with a rule for equal ones: the lower class number comes first.

Shapes: b images, s slots, c candidates.
"""

import torch
from torch import Tensor

__all__ = ["first_of", "in_order"]


def first_of(logits: Tensor, classes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` largest logits of each row and their classes: ``(b, s), (s,) -> (b, count), (b, count)``.

    ``torch.topk`` takes any of the classes whose logit equals the last one taken. Only where it had a choice, which
    is rare, is the choice made again by class number. A class below 0 is padding, and its logit -inf.
    """
    values, place = logits.topk(count)
    owner = classes[place]
    last = values[:, -1:]
    chosen = (values == last).sum(dim=1, keepdim=True)
    if not bool(((logits == last).sum(dim=1, keepdim=True) > chosen).any()):
        return values, owner
    highest = int(classes.max()) + 1
    key = torch.where((logits == last) & (classes >= 0), highest - classes, 0)  # (b, s): the lower class the larger
    lowest = highest - key.topk(count).values
    above = count - chosen  # values come in falling order: those equal to the last one stand behind
    position = torch.arange(count, device=logits.device)
    tied = lowest.gather(1, (position - above).clamp(min=0))
    return values, torch.where(position < above, owner, tied)


def in_order(values: Tensor, classes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first ``count`` candidates of each row, by falling value and then by rising class: ``(b, c)`` each."""
    classes, order = classes.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values[:, :count].contiguous(), classes.gather(1, order[:, :count])  # a view would keep all candidates
