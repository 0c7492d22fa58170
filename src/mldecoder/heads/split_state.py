"""Save and load what a split layer and its optimiser hold, on any number of processes.

The tensors of a share are written as parts of whole ones by torch's distributed checkpoint: every process writes its
own part and reads what of the files falls into its share, so the number of processes may be another at every start.
No process ever holds a whole tensor.

Shapes: k queries, q queries of this process, g columns a group, d width, n classes, m classes of this process.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.optim import Optimizer

from mldecoder.errors import CheckpointError
from mldecoder.heads.blocks import to_slots
from mldecoder.heads.split import SplitGroupLinear

__all__ = ["fill_split_state", "gather_full_state", "load_split_state", "save_split_state", "split_state"]

State = dict[str, Any]


def split_state(layer: SplitGroupLinear, optimiser: Optimizer | None = None) -> State:
    """Weights, bias and their optimiser state as parts of whole tensors, for torch's distributed checkpoint.

    ``weight`` is ``(k, d, g)``; what has one value a class stands in the order of the slots, ``(k, g)``; ``classes``
    says which class that is, -1 in the padding. The state of an optimiser has the names ``weight.exp_avg`` and so on;
    single numbers, such as a step, are the same on all processes.
    """
    share = layer.share
    state: State = {
        "weight": _part(layer, share.weight.detach()),
        "bias": _part(layer, _by_slot(layer, share.bias.detach())),
        "classes": _part(layer, _classes(layer)),
    }
    for name, parameter in (("weight", share.weight), ("bias", share.bias)):
        for key, value in (optimiser.state.get(parameter, {}) if optimiser else {}).items():
            if not isinstance(value, Tensor) or value.ndim == 0:
                state[f"{name}.{key}"] = value
            elif name == "bias":
                state[f"{name}.{key}"] = _part(layer, _by_slot(layer, value))
            else:
                state[f"{name}.{key}"] = _part(layer, value)
    return state


def save_split_state(folder: Path, layer: SplitGroupLinear, optimiser: Optimizer | None = None) -> None:
    """Write :func:`split_state` into a folder; all processes call it together."""
    ranks, state = layer.ranks, split_state(layer, optimiser)
    with _quiet():
        save(state, checkpoint_id=folder, process_group=ranks.group, no_dist=not ranks.together)


def load_split_state(folder: Path, layer: SplitGroupLinear, optimiser: Optimizer | None = None) -> None:
    """Fill a layer and its optimiser from such a folder, whatever number of processes wrote it; all call it together.

    The optimiser may be fresh: its state is made from what the files hold.
    """
    share, ranks = layer.share, layer.ranks
    try:
        written = FileSystemReader(folder).read_metadata().state_dict_metadata
    except OSError as error:
        raise CheckpointError(f"{folder} holds no state of a split layer: {error}") from error
    wanted = {name: value for name, value in written.items() if optimiser or "." not in name}
    state: State = {}
    for name, value in wanted.items():
        if not isinstance(value, TensorStorageMetadata):
            state[name] = 0
        elif len(value.size) == 0:
            state[name] = torch.empty((), dtype=value.properties.dtype)
        else:
            _check_size(folder, layer, name, value)
            part = torch.empty(share.num_queries, *value.size[1:], dtype=value.properties.dtype)
            state[name] = _part(layer, part.to(share.weight.device))
    with _quiet():
        load(state, checkpoint_id=folder, process_group=ranks.group, no_dist=not ranks.together)
    fill_split_state(layer, state, optimiser, str(folder))


def fill_split_state(
    layer: SplitGroupLinear, state: State, optimiser: Optimizer | None = None, source: str = "The state"
) -> None:
    """Give a layer and its optimiser what :func:`split_state` of another one held, read into tensors of this share."""
    share = layer.share
    own = {name: value.to_local() if isinstance(value, DTensor) else value for name, value in state.items()}
    if not torch.equal(own["classes"], _classes(layer)):
        raise CheckpointError(f"{source} deals the classes out to the queries in another way. Use the same groups.")
    with torch.no_grad():
        share.weight.copy_(own["weight"])
        share.bias.copy_(_by_class(layer, own["bias"]))
    if optimiser is not None:
        _fill_optimiser(layer, optimiser, own)


def gather_full_state(layer: SplitGroupLinear) -> dict[str, Tensor]:
    """The state of the ordinary layer, whole on every process: for layers that fit. All processes call it together."""
    share, ranks = layer.share, layer.ranks
    shares = [queries.stop - queries.start for queries in ranks.shares(layer.num_queries)]
    return {
        "weight": torch.cat(ranks.gather(share.weight, shares)).detach(),
        "bias": layer.by_class(share.bias.detach()),
        "slots": layer.all_slots(),
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch warns one process that it is alone, which it is told with ``no_dist``."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


def _fill_optimiser(layer: SplitGroupLinear, optimiser: Optimizer, own: State) -> None:
    known = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    for name, parameter in (("weight", layer.share.weight), ("bias", layer.share.bias)):
        if id(parameter) in known:
            optimiser.state[parameter] = {
                key.removeprefix(f"{name}."): _of_parameter(layer, parameter, value)
                for key, value in own.items()
                if key.startswith(f"{name}.")
            }


def _of_parameter(layer: SplitGroupLinear, parameter: nn.Parameter, value: object) -> object:
    if isinstance(value, Tensor) and value.ndim > 0 and parameter.ndim == 1:
        return _by_class(layer, value)
    return value


def _part(layer: SplitGroupLinear, own: Tensor) -> Tensor:
    """A tensor of this process's queries ``(q, ...)`` as a part of the whole one ``(k, ...)``."""
    ranks = layer.ranks
    if not ranks.together:
        return own
    group = ranks.group or dist.distributed_c10d._get_default_group()
    mesh = DeviceMesh.from_group(group, own.device.type)
    whole = torch.empty(layer.num_queries, *own.shape[1:], device="meta")
    return DTensor.from_local(
        own.contiguous(), mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=whole.stride()
    )


def _by_slot(layer: SplitGroupLinear, values: Tensor) -> Tensor:
    """One value a class in the order of the slots: ``(m,) -> (q, g)``."""
    return to_slots(values, layer.share).view(layer.share.num_queries, layer.group_size)


def _by_class(layer: SplitGroupLinear, values: Tensor) -> Tensor:
    """The way back: ``(q, g) -> (m,)``."""
    return values.flatten().index_select(0, layer.share.slots)


def _classes(layer: SplitGroupLinear) -> Tensor:
    """The class that stands in each slot, by its number in the whole layer: ``(q, g)``, -1 in the padding."""
    share = layer.share
    classes = torch.full_like(share.class_of_slot, -1)
    return classes.index_copy(0, share.slots, share.classes).view(share.num_queries, layer.group_size)


def _check_size(folder: Path, layer: SplitGroupLinear, name: str, written: TensorStorageMetadata) -> None:
    expected = {"weight": (layer.num_queries, layer.width, layer.group_size)}.get(name)
    if written.size[0] != layer.num_queries or (expected and tuple(written.size) != expected):
        raise CheckpointError(
            f"{folder} has {name} of the shape {tuple(written.size)}, the layer has {layer.num_queries} queries of "
            f"width {layer.width} and groups of {layer.group_size}. Load it into a layer of its own sizes."
        )
