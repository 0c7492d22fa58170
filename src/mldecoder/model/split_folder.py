"""A model whose group layer is split over processes: built, saved and loaded without ever being whole anywhere.

The folder is the one that the same model would write on one process, byte for byte: nobody who loads it needs to know.

Shapes: k queries, q queries of this process, g columns a group, d width, n classes.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from mldecoder.config import MLDecoderConfig, ModelConfig
from mldecoder.errors import CheckpointError, ConfigError
from mldecoder.heads import MLDecoder
from mldecoder.heads.ranks import Ranks
from mldecoder.heads.split import SplitGroupLinear
from mldecoder.model.classifier import Classifier
from mldecoder.model.folder import CONFIG, WEIGHTS, read_config, rebuild, write

__all__ = ["build_split", "build_split_head", "load_split", "save_split"]

PIECE_BYTES = 64 * 2**20
"""What the first process holds of another's weights at a time."""
LAYER = "head.classify."

# The order in which safetensors puts types (the last first), and their names in its header.
_TYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
}


def build_split(config: ModelConfig, ranks: Ranks | None = None) -> Classifier:
    """The untrained model of a config, with this process's part of the group layer.

    The other weights follow torch's own generator, as always: seed it the same on every process.
    """
    head = _head_config(config)
    layer = _untrained(head, len(config.labels), ranks)
    model = _without_groups(config, head)
    _put(model.head, layer)
    return model


def build_split_head(
    config: MLDecoderConfig, num_classes: int, in_features: int, ranks: Ranks | None = None
) -> MLDecoder:
    """The same of a head alone."""
    layer = _untrained(config, num_classes, ranks)
    small = _one_class_a_query(config, layer.num_queries)
    return _put(small.build(layer.num_queries, in_features), layer)


def load_split(folder: Path, ranks: Ranks | None = None, *, map_location: str = "cpu") -> Classifier:
    """Load this process's part of a model folder, by whatever number of processes it was written."""
    config = read_config(folder / CONFIG)
    head = _head_config(config)
    model = _without_groups(config, head)
    file = folder / WEIGHTS
    try:
        with safe_open(file, framework="pt") as weights:
            names = [name for name in weights.keys() if not name.startswith(LAYER)]  # noqa: SIM118  # no mapping
            rest = {name: weights.get_tensor(name) for name in names}
            whole = weights.get_slice(f"{LAYER}weight")
            k, width, group_size = whole.get_shape()
            layer = SplitGroupLinear.empty(weights.get_tensor(f"{LAYER}slots"), k, group_size, width, ranks)
            share = layer.share
            bias = weights.get_tensor(f"{LAYER}bias")
            layer.to(bias.dtype)
            with torch.no_grad():
                share.weight.copy_(whole[share.queries.start : share.queries.stop])
                share.bias.copy_(bias[share.classes])
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    _put(model.head, layer)
    floats = {value.dtype for value in (*rest.values(), bias) if value.is_floating_point()}
    if len(floats) == 1:
        model.to(floats.pop())
    try:
        missing, unexpected = model.load_state_dict(rest, strict=False)
    except RuntimeError as error:
        raise CheckpointError(f"{file} does not fit its {CONFIG}: {str(error).splitlines()[-1].strip()}") from error
    odd = [name for name in (*missing, *unexpected) if not name.startswith(LAYER)]
    if odd:
        raise CheckpointError(f"{file} does not fit its {CONFIG}: {odd[0]} is in only one of them.")
    return model.to(map_location).eval()


def save_split(model: Classifier, folder: Path) -> None:
    """Write the model folder; all processes call it together, and the first one writes.

    The weights of the others come to it in pieces of at most ``PIECE_BYTES``, or one query's, and go straight to disk.
    """
    layer = _layer(model)
    slots, bias = layer.all_slots().cpu(), layer.by_class(layer.share.bias.detach()).cpu()
    if layer.ranks.rank:
        _stream(layer, lambda _: None)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write(model, model.config, folder, lambda whole, file: _save(whole, layer, slots, bias, file))


def _save(model: nn.Module, layer: SplitGroupLinear, slots: Tensor, bias: Tensor, file: Path) -> None:
    """Write a safetensors file piece by piece: the library itself wants every tensor whole."""
    small = {name: value.detach() for name, value in model.state_dict().items() if not name.startswith(LAYER)}
    small |= {f"{LAYER}slots": slots, f"{LAYER}bias": bias}
    large = torch.empty(layer.num_queries, layer.width, layer.group_size, dtype=layer.share.weight.dtype, device="meta")
    everything = {**small, f"{LAYER}weight": large}
    order = sorted(everything, key=lambda name: (-list(_TYPES).index(everything[name].dtype), name))
    with file.open("wb") as out:
        out.write(_header({name: everything[name] for name in order}))
        for name in order:
            if name in small:
                out.write(_bytes(small[name]))
            else:
                _stream(layer, lambda piece: out.write(_bytes(piece)))


def _header(tensors: dict[str, Tensor]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, tensor in tensors.items():
        end = place + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _stream(layer: SplitGroupLinear, take: Callable[[Tensor], object]) -> None:
    """Bring the weights of all processes to the first one, which takes them piece by piece in the order of queries."""
    ranks, own = layer.ranks, layer.share.weight.detach()
    rows = max(1, PIECE_BYTES // max(1, layer.width * layer.group_size * own.element_size()))
    for rank, queries in enumerate(ranks.shares(layer.num_queries)):
        for first in range(queries.start, queries.stop, rows):
            count = min(rows, queries.stop - first)
            if rank == ranks.rank:
                piece = own[first - queries.start :][:count]
                if rank == 0:
                    take(piece)
                else:
                    dist.send(piece.contiguous(), group_dst=0, group=ranks.group)
            elif ranks.rank == 0:
                received = own.new_empty(count, *own.shape[1:])
                dist.recv(received, group_src=rank, group=ranks.group)
                take(received)


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _head_config(config: ModelConfig) -> MLDecoderConfig:
    if not isinstance(config.head, MLDecoderConfig):
        raise ConfigError(f"Only an ML-Decoder head can be split over processes, got {config.head.kind}.")
    return config.head


def _untrained(head: MLDecoderConfig, num_classes: int, ranks: Ranks | None) -> SplitGroupLinear:
    if head.groups not in ("random", "ordered"):
        raise ConfigError(
            f"head.groups must be random or ordered where the layer is built in shares, got {head.groups}: "
            "others come with the weights. Use load_split."
        )
    return SplitGroupLinear(
        num_classes,
        head.num_queries or min(100, num_classes),
        head.width,
        groups=head.groups,
        layout=head.group_layout,
        seed=head.seed,
        ranks=ranks,
    )


def _one_class_a_query(head: MLDecoderConfig, num_queries: int) -> MLDecoderConfig:
    """The same head with a group layer so small that it may be built, to give way to a share of the large one."""
    return head.model_copy(update={"num_queries": num_queries, "groups": "ordered", "group_size": None})


def _without_groups(config: ModelConfig, head: MLDecoderConfig) -> Classifier:
    queries = head.num_queries or min(100, len(config.labels))
    small = {"head": _one_class_a_query(head, queries), "labels": config.labels[:queries]}
    backbone, module, _ = rebuild(config.model_copy(update=small))
    return Classifier(backbone, module, config)


def _put(head: nn.Module, layer: SplitGroupLinear) -> MLDecoder:
    if type(head) is not MLDecoder:
        raise ConfigError(f"Only a plain ML-Decoder head can be split over processes, got {type(head).__name__}.")
    head.classify = layer  # type: ignore[assignment]
    head.num_classes = layer.num_classes
    return head


def _layer(model: Classifier) -> SplitGroupLinear:
    layer: object = getattr(model.head, "classify", None)
    if not isinstance(layer, SplitGroupLinear):
        raise ConfigError("The model's group layer is not split. Save it with save_pretrained.")
    return layer
