"""A model in shards: every process keeps a part of each weight, and gathers a unit's weights while it computes (FSDP2).

This is torch's own ``fully_shard``, called directly. Accelerate's plugin does the same behind a second set of options,
wraps the model as one unit that only ``forward`` may enter, and brings checkpoints of its own; ours is entered at its
backbone and at its head, as evaluation by lists of words and the grouped loss do.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from mldecoder.model import Classifier

__all__ = ["LEAST", "is_sharded", "release", "shard", "units"]

LEAST = 1_000_000
"""Parameters of the smallest unit: smaller ones would wait for messages more than they compute."""


def units(backbone: nn.Module, least: int | None = None) -> list[nn.Module]:
    """The blocks of a backbone that are gathered one at a time: its smallest repeated parts that are large enough.

    A repeated part stands in a ``ModuleList`` or ``Sequential`` and has parts itself. What is in none of them (stem,
    last norm) is gathered with the backbone.
    """
    least = LEAST if least is None else least
    found: list[nn.Module] = []

    def walk(module: nn.Module, repeated: bool) -> bool:
        """Collect the units in a module; says whether there were any."""
        children = list(module.children())
        inside = [walk(child, isinstance(module, nn.ModuleList | nn.Sequential)) for child in children]
        if any(inside):
            return True
        plain = isinstance(module, nn.ModuleList | nn.Sequential)  # a list is no block: nobody calls a ModuleList
        if repeated and children and not plain and sum(p.numel() for p in module.parameters()) >= least:
            found.append(module)
            return True
        return False

    walk(backbone, repeated=False)
    return found


def shard(model: Classifier, mesh: DeviceMesh, device: torch.device, *extra: nn.Module) -> None:
    """Split every parameter of a model, and of modules that are trained beside it, over the processes of a mesh.

    The model may still be on the CPU: only one unit at a time is whole on the device. Buffers are small, and every
    process keeps them.
    """
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.to(device)
    for unit in units(model.backbone):
        _split(unit, mesh, release_early=True)
    # Backbone and head are entered one by one, so each is a root. A root's weights stay until the backward pass:
    # group layer and loss are computed together (losses.grouped), after the head's own forward has ended.
    for part in (model.backbone, model.head, *extra):
        _split(part, mesh, release_early=False)
    if hasattr(model.head, "decode"):
        register_fsdp_forward_method(model.head, "decode")


def _split(module: nn.Module, mesh: DeviceMesh, *, release_early: bool) -> None:
    module.register_forward_hook(_own_memory)
    fully_shard(module, mesh=mesh, reshard_after_forward=release_early)


def _own_memory(_: nn.Module, __: object, output: object) -> object:
    """Copy an output that is a view: a change in place of one would make torch forget to gather before backward."""
    return output.clone() if isinstance(output, Tensor) and output._is_view() else output


def is_sharded(module: nn.Module) -> bool:
    """Whether a forward pass of the module needs all processes at once."""
    return any(True for _ in _sharded_parts(module))


def release(module: nn.Module) -> None:
    """Give back what was gathered for passes without a backward one.

    The next pass would else see the weights of now: an average changes between two evaluations and nobody else asks
    for its weights in between.
    """
    for part in _sharded_parts(module):
        part.reshard()


def _sharded_parts(module: nn.Module) -> Iterator[FSDPModule]:
    return (part for part in module.modules() if isinstance(part, FSDPModule))
