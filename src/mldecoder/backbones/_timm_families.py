"""The timm families whose features need more than timm's own contract, each with its reason.

The contract is ``reset_classifier(0, global_pool="")`` followed by ``forward_head(forward_features(x),
pre_logits=True)``: the whole head runs without pooling, so that the final norm of families which keep it there
(ConvNeXt, MaxViT, DaViT, Hiera, ...) runs at each position. Everything a family computes on the map is kept, and
so is a final norm; layers that it runs only on the pooled vector (expansions, hidden layers) are removed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.attention_pool2d import AttentionPool2d, RotAttentionPool2d
from timm.layers.classifier import ClNormMlpClassifierHead, NormMlpClassifierHead
from torch import Tensor, nn

__all__ = ["FAMILIES", "Family", "family_of", "unpooled"]


def unpooled(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - timm models are untyped
    """The way of timm's contract: body and head, with pooling off."""
    out: Tensor = model.forward_head(model.forward_features(x), pre_logits=True)
    return out


def before_head(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """The body alone."""
    out: Tensor = model.forward_features(x)
    return out


@dataclass(frozen=True)
class Family:
    """One row: how to get the features, what to remove, and why the contract is not enough."""

    reason: str
    features: Callable[[Any, Tensor], Tensor] = before_head
    remove: tuple[str, ...] = ()
    num_prefix_tokens: int | Callable[[Any], int] | None = None  # None: timm's own attribute
    grid: bool | Callable[[Any], bool] = True
    with_prefix: "Family | None" = None  # the row to take instead when prefix tokens are kept


def before_class_attention(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """The map that the class token would attend to, under the final norm."""
    out: Tensor = model.forward_intermediates(
        x, indices=1, norm=True, stop_early=True, output_fmt="NCHW", intermediates_only=True
    )[-1]
    return out


def efficientvit(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """Keep the convolution that widens the map before it is pooled."""
    out: Tensor = model.head.in_conv(model.forward_features(x))
    return out


def lowformer(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """As ``efficientvit``; here the convolution belongs to the model itself."""
    out: Tensor = model.in_conv(model.forward_features(x))
    return out


def pit(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """Return the map as well as the class tokens, which alone leave ``forward_features``; one norm for both."""
    x = model.patch_embed(x)
    x = model.pos_drop(x + model.pos_embed)
    prefix = model.cls_token.expand(x.shape[0], -1, -1)
    x, prefix = model.transformers((x, prefix))  # (b, c, h, w), (b, prefix, c)
    out: Tensor = model.norm(torch.cat([prefix, x.flatten(2).transpose(1, 2)], dim=1))
    return out


def coat(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """Join the tokens of the parallel scales, which are equally wide, behind their class tokens."""
    scales = model.forward_features(x)
    if isinstance(scales, Tensor):
        return scales
    return torch.cat([s[:, :1] for s in scales] + [s[:, 1:] for s in scales], dim=1)


def coat_prefix(model: Any) -> int:  # noqa: ANN401
    """One class token a scale."""
    return 1 if model.parallel_blocks is None else 3


def coat_grid(model: Any) -> bool:  # noqa: ANN401
    """Several scales lie on several grids."""
    return model.parallel_blocks is None


def pit_prefix(model: Any) -> int:  # noqa: ANN401
    """The class token, and the distillation token where there is one."""
    return int(model.cls_token.shape[1])


def crossvit(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """Stretch the coarse branch to the grid of the fine one and join the channels, as timm does after pooling.

    The last fusion changes only the class tokens: without them its gradients are zero.
    """
    branches = model.forward_features(x)
    grids = [
        (embed.img_size[0] // embed.patch_size[0], embed.img_size[1] // embed.patch_size[1])
        for embed in model.patch_embed
    ]
    rows, columns = max(grids)
    joined = []
    for tokens, grid in zip(branches, grids, strict=True):
        patches = tokens[:, 1:].transpose(1, 2).unflatten(2, grid)  # (b, c, h, w)
        if grid != (rows, columns):
            patches = F.interpolate(patches, (rows, columns), mode="bilinear", align_corners=False)
        joined.append(torch.cat([tokens[:, :1], patches.flatten(2).transpose(1, 2)], dim=1))
    return torch.cat(joined, dim=2)


def efficientvim(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """Take the last map; the hidden states of the earlier stages have no place in the picture."""
    x = model.patch_embed(x)
    for stage in model.stages:
        x = stage(x)[1]
    out: Tensor = model.norm[-1](x)
    return out


EXPANDS_AFTER_POOLING = "a 1x1 convolution after pooling widens the vector for the classifier"
ENCODER = "an encoder without a head; a bridge to a language model may follow"
CLASS_TOKEN = "timm does not say that a class token comes first"
CLASS_ATTENTION = "the last layers serve only the class token, which starts there"
CLASS_ATTENTION_KEPT = Family(CLASS_TOKEN, unpooled, num_prefix_tokens=1)

# By the name of the class; subclasses inherit the row.
FAMILIES: dict[str, Family] = {
    "CPUBone": Family(
        "a hidden layer works on the pooled vector", efficientvit, ("head.pre_classifier", "head.classifier")
    ),
    "Cait": Family(
        CLASS_ATTENTION,
        before_class_attention,
        ("cls_token", "blocks_token_only", "head"),
        with_prefix=CLASS_ATTENTION_KEPT,
    ),
    "CoaT": Family(
        "pooling cannot be turned off; several scales come out as a list",
        coat,
        ("head", "aggregate"),
        coat_prefix,
        coat_grid,
    ),
    "ConVit": Family(CLASS_TOKEN, unpooled, num_prefix_tokens=1),
    "ConvMixer": Family("the head flattens the map", remove=("head",)),
    "CrossVit": Family(
        "pooling cannot be turned off; two branches come out as a list; the last fusion changes only the class tokens, "
        "without which its gradients are zero",
        crossvit,
        ("head",),
        1,
    ),
    "DeepseekVitEncoder": Family(ENCODER, remove=("aligner",)),
    "EfficientViM": Family(
        "several hidden states come out as a list", efficientvim, ("heads", "weights", "norm.0", "norm.1", "norm.2")
    ),
    "EfficientViMDistilled": Family(
        "as EfficientViM",
        efficientvim,
        ("heads", "weights", "heads_dist", "weights_dist", "norm.0", "norm.1", "norm.2"),
    ),
    "EfficientVit": Family("pooling cannot be turned off", efficientvit, ("head.classifier",)),
    "EfficientVitLarge": Family("pooling cannot be turned off", efficientvit, ("head.classifier",)),
    "Eva": Family("attention pools the tokens even with pooling off", unpooled, ("attn_pool",)),
    "FasterNet": Family(EXPANDS_AFTER_POOLING, remove=("conv_head", "classifier")),
    "Gemma4VitEncoder": Family(ENCODER),
    "GhostNet": Family(EXPANDS_AFTER_POOLING, remove=("conv_head", "classifier")),
    "HighPerfGpuNet": Family(EXPANDS_AFTER_POOLING, remove=("head",)),
    "LCNetV2": Family(EXPANDS_AFTER_POOLING, remove=("conv_head", "classifier")),
    "LowFormer": Family("a hidden layer works on the pooled vector", lowformer, ("pre_classifier", "classifier")),
    "MambaOut": Family("a hidden layer works on the pooled vector", unpooled, ("head.pre_logits",)),
    "MetaNeXt": Family("pooling cannot be turned off; the head is a hidden layer", remove=("head",)),
    "MobileNetV3": Family(EXPANDS_AFTER_POOLING, remove=("conv_head", "norm_head", "classifier")),
    "MobileNetV5": Family(EXPANDS_AFTER_POOLING, remove=("conv_head", "norm_head", "classifier")),
    "MobileNetV5Encoder": Family(ENCODER),
    "PoolingVisionTransformer": Family("only the class tokens come out", pit, ("head", "head_dist"), pit_prefix),
    "Qwen3VitEncoder": Family(ENCODER, remove=("merger",)),
    "RepGhostNet": Family(EXPANDS_AFTER_POOLING, remove=("conv_head", "classifier")),
    "VGG": Family("the hidden layers take a 7x7 map to one vector", remove=("pre_logits", "head")),
    "VOLO": Family(
        CLASS_ATTENTION,
        before_class_attention,
        ("cls_token", "post_network", "aux_head", "head"),
        with_prefix=CLASS_ATTENTION_KEPT,
    ),
    "VisionTransformerDistilled": Family(
        "the head reads its two tokens even without pooling", remove=("head", "head_dist")
    ),
    "Xcit": Family(
        CLASS_ATTENTION,
        before_class_attention,
        ("cls_token", "cls_attn_blocks", "head"),
        with_prefix=CLASS_ATTENTION_KEPT,
    ),
}


def family_of(model: nn.Module) -> Family:
    """The row of a timm model; most models have none and follow the contract."""
    for cls in type(model).__mro__:
        if cls.__name__ in FAMILIES and cls.__module__.startswith("timm."):
            return FAMILIES[cls.__name__]
    head = dict(model.named_children()).get("head")
    if isinstance(head, AttentionPool2d | RotAttentionPool2d):
        return Family("attention pools the map", remove=("head",))
    if isinstance(head, NormMlpClassifierHead | ClNormMlpClassifierHead):
        return Family("a hidden layer may follow the final norm", unpooled, ("head.pre_logits",))
    return Family("the contract", unpooled)
