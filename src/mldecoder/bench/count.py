"""Multiply-adds of a forward pass, counted by torch; of heads on the meta device, where nothing is computed."""

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mldecoder.bench.contenders import Contender
from mldecoder.bench.place import machine_memory

__all__ = ["multiply_adds", "multiply_adds_of"]

_META = torch.device("meta")


def multiply_adds(model: nn.Module, x: Tensor) -> tuple[int, tuple[int, ...]]:
    """Multiply-adds of ``model`` for this input, and the shape of what comes out.

    Norms, softmax, biases and activations are not counted.
    """
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        shape = tuple(model(x).shape)
    return int(counter.get_total_flops()) // 2, shape  # torch takes a multiply-add for two operations


def multiply_adds_of(contender: Contender, width: int, shape: tuple[int, ...]) -> int | None:
    """The same of a head on the meta device, for features of one image; None where it cannot be counted.

    Gradients stay on, so that what a head keeps from batch to batch is counted as well.
    """
    if (contender.queries or 0) * width * 4 > machine_memory() // 4:  # queries are drawn on the CPU, even for meta
        return None
    try:
        return multiply_adds(contender.build(_META).eval(), torch.zeros(shape, device=_META))[0]
    except Exception:  # a peer that cannot run without numbers
        return None
