"""What training has to treat apart when a model's group layer is split over processes.

The share of a process is its own: nobody averages its gradients, broadcasts its buffers, or measures its norm alone.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from mldecoder.heads.split import SplitGroupLinear

__all__ = ["clip_grad_norm_", "common_buffers", "keep_from_ddp", "split_layers", "split_parameters"]


def split_layers(module: nn.Module) -> list[SplitGroupLinear]:
    """The split layers of a module."""
    return [part for part in module.modules() if isinstance(part, SplitGroupLinear)]


def split_parameters(module: nn.Module) -> set[nn.Parameter]:
    """The parameters that are another on each process: for ``ignored_params`` of FSDP2's ``fully_shard``."""
    return {parameter for layer in split_layers(module) for parameter in layer.parameters()}


def common_buffers(module: nn.Module) -> Iterator[Tensor]:
    """The buffers that all processes have: those that may be broadcast."""
    own = {id(buffer) for layer in split_layers(module) for buffer in layer.buffers()}
    return (buffer for buffer in module.buffers() if id(buffer) not in own)


def keep_from_ddp(module: nn.Module) -> None:
    """Tell DDP, before it wraps the module, to leave the shares alone: no broadcast and no averaging."""
    names = [
        f"{prefix}.{name}"
        for prefix, part in module.named_modules()
        if isinstance(part, SplitGroupLinear)
        for name, _ in [*part.named_parameters(), *part.named_buffers()]
    ]
    tell = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model  # DDP's own way to be told
    tell(module, names)  # type: ignore[no-untyped-call]


def clip_grad_norm_(module: nn.Module, max_norm: float) -> Tensor:
    """Clip by the norm of the whole gradient, every process's share in it; returns that norm.

    With the norm of its own share alone, every process would scale the common weights by another factor. All
    processes call it together, after common gradients have been averaged.
    """
    split = split_parameters(module)
    own = [parameter for parameter in split if parameter.grad is not None]
    common = [parameter for parameter in module.parameters() if parameter not in split and parameter.grad is not None]
    square = _norm(own).square()
    for layer in split_layers(module)[:1]:
        if layer.ranks.size > 1:
            square = square.to(layer.share.weight.device)
            dist.all_reduce(square, group=layer.ranks.group)
    total = (_norm(common).square().to(square.device) + square).sqrt()
    for parameters in (own, common):
        if parameters:
            nn.utils.clip_grads_with_norm_(parameters, max_norm, total)
    return total


def _norm(parameters: list[nn.Parameter]) -> Tensor:
    if not parameters:
        return torch.zeros(())
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
