"""Heads from outside, good and bad."""

import torch
from torch import Tensor, nn

__all__ = ["Broken", "Hungry", "OneNumber", "Sum"]


class Sum(nn.Module):
    """A linear layer on the sum of the tokens; it takes no number of queries."""

    def __init__(self, num_classes: int, in_features: int) -> None:
        super().__init__()
        self.classify = nn.Linear(in_features, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classify(x.flatten(2).sum(dim=2))
        return logits


class Broken(Sum):
    """It fails in training."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise RuntimeError("the first line\nthe second line")
        return super().forward(x)


class Hungry(Sum):
    """It says that memory is not enough, as the CPU's and the GPU's allocators do."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: ARG002
        if self.training:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB.")
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")


class OneNumber(Sum):
    """It returns something that is no row of logits."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).sum()
