"""Old checkpoints in: heads and models saved by the public implementations.

Two families of files exist, with the same tensors under slightly different names (the official repository keeps
``embed_standart``, ``query_embed`` and ``duplicate_pooling`` inside ``decoder``, timm beside it). Kind and every size
are read off the tensors; only the number of attention heads is not in them.

Shapes: k queries, d width, g classes a query, n classes, c features, e text width.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mldecoder.backbones import create_backbone
from mldecoder.backbones.weights import load_weights
from mldecoder.config import BackboneConfig, PreprocessingConfig
from mldecoder.errors import CheckpointError
from mldecoder.heads import MLDecoder, ZeroShotMLDecoder
from mldecoder.model import Classifier, join

__all__ = ["head_from_state_dict", "labels_of", "model_from_file", "read_checkpoint", "state_of"]

H = TypeVar("H", bound=nn.Module)
_WRAPPERS = ("state_dict_ema", "model_ema", "model", "state_dict")  # the order in which timm's loader looks
_LAYER = "decoder.layers.0."
_RENAMED = {  # ours -> theirs, relative to the head; what timm keeps beside `decoder` is looked up there too
    "decoder.embed": "embed_standart",
    "decoder.layers.0.norm1": _LAYER + "norm1",
    "decoder.layers.0.norm2": _LAYER + "norm2",
    "decoder.layers.0.norm3": _LAYER + "norm3",
    "decoder.layers.0.linear1": _LAYER + "linear1",
    "decoder.layers.0.linear2": _LAYER + "linear2",
    "decoder.layers.0.attention.out": _LAYER + "multihead_attn.out_proj",
}


def head_from_state_dict(state: Mapping[str, Tensor], *, heads: int = 8) -> MLDecoder | ZeroShotMLDecoder:
    """Build a working head from an official or timm state dict, of the head alone or of a whole model.

    Args:
        state: The state dict; keys of a backbone around the head are passed over.
        heads: Attention heads. They leave no trace in the tensors; both public implementations use 8.

    Example:
        >>> head = head_from_state_dict(torch.load("old.pth", weights_only=True))  # doctest: +SKIP
    """
    state = state_of(state)
    return _head(_of_head(state, _prefix(state)), heads)


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a ``.safetensors`` file or a pickle of plain tensors; a pickle with anything else in it is refused."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}. Pass the path of a .pth, .pt, .bin or .safetensors file.")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return dict(load_file(path))
        except SafetensorError as error:
            raise CheckpointError(f"{path} is not a readable safetensors file: {error}.") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch wonders aloud about pickles that it then reads or refuses
            content = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise CheckpointError(
            f"{path} is refused: it holds more than tensors and plain values, and unpickling it could run any code. "
            f"Save its state_dict() alone where you trust it, and convert that file."
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason = (str(error) or "it ends too early").splitlines()[0]
        raise CheckpointError(f"{path} is not a readable torch file: {reason}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a dict of tensors, got {type(content).__name__}.")
    return content


def state_of(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a checkpoint, out of whatever wrapper it has, without ``module.`` in front."""
    for key in _WRAPPERS:
        if isinstance(checkpoint.get(key), Mapping):
            checkpoint = checkpoint[key]
            break
    tensors = {key.removeprefix("module."): value for key, value in checkpoint.items() if isinstance(value, Tensor)}
    if not tensors:
        raise CheckpointError(f"The checkpoint holds no tensors; its keys are {sorted(checkpoint)[:5]}.")
    return tensors


def labels_of(checkpoint: Mapping[str, Any]) -> list[str] | None:
    """The class names that the official inference script reads from ``idx_to_class``, if there are any."""
    names = checkpoint.get("idx_to_class")
    if isinstance(names, Mapping):
        return [str(names[key]) for key in sorted(names, key=int)]
    return None


def model_from_file(
    path: str | Path,
    backbone: str,
    *,
    labels: list[str] | None = None,
    image_size: int | None = None,
    heads: int = 8,
) -> Classifier:
    """Read a whole old model: the backbone's weights, the head and the class names.

    Args:
        path: The old file.
        backbone: The timm name of its backbone. The official TResNet-L is timm's ``tresnet_v2_l``.
        labels: Class names, where the file has none.
        image_size: Side of the pictures that the model was trained on; ``None`` takes the backbone's.
        heads: Attention heads of the old model.
    """
    checkpoint = read_checkpoint(path)
    state = state_of(checkpoint)
    prefix = _prefix(state)
    head = _head(_of_head(state, prefix), heads)
    if isinstance(head, ZeroShotMLDecoder):
        raise CheckpointError(
            f"{path} is a zero-shot model without its word vectors. Take its head by convert.head_from_state_dict."
        )
    size = (image_size, image_size) if image_size else None
    body = create_backbone(backbone, img_size=size)
    if head.in_features != body.num_features:
        raise CheckpointError(
            f"The head in {path} takes {head.in_features} features, but {backbone} gives {body.num_features}. "
            f"Pass the backbone that the file was trained with (the official TResNet-L is tresnet_v2_l)."
        )
    load_weights(body, {key: value for key, value in state.items() if not key.startswith(prefix)}, str(path))
    names = tuple(labels or labels_of(checkpoint) or (f"class {i}" for i in range(head.num_classes)))
    if len(names) != head.num_classes:
        raise CheckpointError(f"{path} scores {head.num_classes} classes, but {len(names)} names were given.")
    # The official scripts squash pictures to a square and scale them to 0..1, without ImageNet statistics.
    preprocessing = PreprocessingConfig(size=size or body.preprocessing.size, resize="squash", interpolation="bilinear")
    return join(body, BackboneConfig(name=backbone, img_size=size), head, names, preprocessing=preprocessing)


def _prefix(state: Mapping[str, Tensor]) -> str:
    """What stands in front of the head's keys."""
    found = [key for key in state if key.split(".")[-1] == "duplicate_pooling"]
    if len(found) != 1:
        raise CheckpointError(
            f"An ML-Decoder state dict has one 'duplicate_pooling', found {len(found)} among {len(state)} keys. "
            f"Is it another kind of head?"
        )
    return found[0].removesuffix("duplicate_pooling").removesuffix("decoder.")


def _of_head(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The head's tensors under the official names, whichever family the file belongs to."""
    own = {key.removeprefix(prefix): value.float() for key, value in state.items() if key.startswith(prefix)}
    return {key if key.startswith("decoder.layers.") else key.removeprefix("decoder."): own[key] for key in own}


def _head(state: dict[str, Tensor], heads: int) -> MLDecoder | ZeroShotMLDecoder:
    try:
        return _zero_shot(state, heads) if "wordvec_proj.weight" in state else _grouped(state, heads)
    except KeyError as error:
        raise CheckpointError(f"The head's tensor {error.args[0]!r} is missing from the checkpoint.") from error


def _grouped(state: dict[str, Tensor], heads: int) -> MLDecoder:
    num_queries, width, _ = state["duplicate_pooling"].shape
    num_classes = len(state["duplicate_pooling_bias"])
    head = MLDecoder(
        num_classes,
        state["embed_standart.weight"].shape[1],
        num_queries=num_queries,
        width=width,
        ff_width=len(state[_LAYER + "linear1.bias"]),
        heads=heads,
        queries=state["query_embed.weight"],
        groups="ordered",
        group_layout="ceil",
    )
    tensors = _shared(state, width) | {
        "queries": state["query_embed.weight"],
        "classify.weight": state["duplicate_pooling"],
        "classify.bias": state["duplicate_pooling_bias"],
        "classify.slots": head.classify.slots,
    }
    return _filled(head, tensors)


def _zero_shot(state: dict[str, Tensor], heads: int) -> ZeroShotMLDecoder:
    width, text_width = state["wordvec_proj.weight"].shape
    head = ZeroShotMLDecoder(
        state["embed_standart.weight"].shape[1],
        text_width,
        width=width,
        ff_width=len(state[_LAYER + "linear1.bias"]),
        heads=heads,
    )
    tensors = _shared(state, width) | {
        "query_projection.weight": state["wordvec_proj.weight"],
        "query_projection.bias": state["wordvec_proj.bias"],
        "classify.weight": state["duplicate_pooling"].T,
        "classify.bias": state["duplicate_pooling_bias"],
    }
    return _filled(head, tensors)


def _shared(state: dict[str, Tensor], width: int) -> dict[str, Tensor]:
    tensors = {
        f"{ours}.{part}": state[f"{theirs}.{part}"] for ours, theirs in _RENAMED.items() for part in ("weight", "bias")
    }
    for part in ("weight", "bias"):  # one stacked projection becomes two: the queries', and the tokens'
        stacked = state[f"{_LAYER}multihead_attn.in_proj_{part}"]
        tensors[f"{_LAYER}attention.query.{part}"] = stacked[:width]
        tensors[f"{_LAYER}attention.key_value.{part}"] = stacked[width:]
    return tensors


def _filled(head: H, tensors: dict[str, Tensor]) -> H:
    try:
        head.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(
            f"The head's tensors do not fit together: {str(error).splitlines()[-1].strip()}"
        ) from error
    return head
