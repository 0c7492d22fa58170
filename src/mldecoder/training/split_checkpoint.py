"""What a sharded checkpoint holds of split layers: the share of a process is written as a part of the whole layer.

See :mod:`mldecoder.heads.split_state`. All other weights are the same in all processes and go by their names.
"""

from typing import Any

from torch import nn
from torch.optim import Optimizer

from mldecoder.heads.split import SplitGroupLinear
from mldecoder.heads.split_state import fill_split_state, split_state
from mldecoder.heads.split_training import split_layers

__all__ = ["fill_shares", "parted", "shares_of"]


def parted(state: dict[str, Any], module: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """A state by a module's names, as what all processes have alike and what is this process's own."""
    layers = tuple(f"{name}." for name, part in module.named_modules() if isinstance(part, SplitGroupLinear))
    own = {name: value for name, value in state.items() if name.startswith(layers)}
    return {name: value for name, value in state.items() if name not in own}, own


def shares_of(module: nn.Module, optimiser: Optimizer | None) -> dict[str, Any]:
    """What a checkpoint holds of the split layers of a module, and of their optimiser."""
    return {f"layer {number}": split_state(layer, optimiser) for number, layer in enumerate(split_layers(module))}


def fill_shares(module: nn.Module, state: dict[str, Any], optimiser: Optimizer | None) -> None:
    """Give them back."""
    for number, layer in enumerate(split_layers(module)):
        fill_split_state(layer, state[f"layer {number}"], optimiser, "The checkpoint")
