"""How much memory a head would need at least, told without allocating any.

A CPU has no allocator that says no in time: the machine swaps, and then kills. So what plainly does not fit is not
tried. The numbers are lower bounds of what a plain implementation holds.

Shapes: b batch, t tokens, c features, n classes, k queries, d width, f feed-forward width, h heads.
"""

import torch

from mldecoder.bench.contenders import Contender
from mldecoder.bench.settings import BenchSettings, Mode

__all__ = ["step_bytes", "weight_numbers"]

_ATTENTION_HEADS = 8
_MATRICES = 5  # that torch holds of each attention on a CPU with dropout: weights, mask, the dropped, two gradients


def weight_numbers(contender: Contender, settings: BenchSettings, in_features: int) -> int:
    """Parameters of a head; 0 for a peer that cannot be built without memory."""
    n, c, d, f = contender.classes, in_features, settings.width, settings.ff_width
    if contender.peer:
        try:
            return sum(p.numel() for p in contender.build(torch.device("meta")).parameters())
        except Exception:  # a peer that needs a real device; its own run says what is wrong with it
            return 0
    if contender.name == "gap":
        return (c + 1) * n
    k = contender.queries or 0
    attention = 4 * (d + 1) * d
    decoder = (c + 1) * d + attention + (d + 1) * f + (f + 1) * d + 6 * d
    group = -(-n // k)
    total = decoder + k * group * d + n
    return total + attention + k * d if contender.name == "transformer-decoder" else total


def step_bytes(
    contender: Contender, settings: BenchSettings, in_features: int, *, mode: Mode, batch: int, itemsize: int
) -> int:
    """Bytes that a step needs at least: weights, their gradients, input, logits, queries, attention."""
    n, c, d, f = contender.classes, in_features, settings.width, settings.ff_width
    t = settings.tokens[0] * settings.tokens[1]
    training = mode == "train"
    numbers = weight_numbers(contender, settings, in_features) * (2 if training else 1)
    numbers += batch * n * (2 if training else 1)
    numbers += batch * (3 * settings.size**2 if settings.backbone else t * c * (2 if training else 1))
    if contender.name in ("ml-decoder", "transformer-decoder"):
        k = contender.queries or 0
        numbers += batch * k * (2 * d + f) + batch * _ATTENTION_HEADS * k * (0 if settings.backbone else t)
        if contender.name == "transformer-decoder":  # every query looks at every query; without dropout once for all
            numbers += (_MATRICES * batch if training else 1) * _ATTENTION_HEADS * k * k
    return numbers * itemsize
