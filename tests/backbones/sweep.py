"""One small model of every timm module, forward and backward, and the page that tells how it went."""

import gc
from dataclasses import dataclass

import timm
import torch

from mldecoder.backbones import create_backbone
from mldecoder.backbones._timm_families import FAMILIES
from mldecoder.backbones._torchvision import list_names as torchvision_names
from mldecoder.backbones._transformers import NAMES as TRANSFORMERS_NAMES

from .checks import check_shapes_and_gradients

SIDE = 128  # where a family takes any size

# The model of each module with the fewest parameters (timm 1.0.30), as ``smallest`` finds it.
CHOICES = {
    "beit": "beit_base_patch16_224",
    "byoanet": "halonet_h1",
    "byobnet": "test_byobnet",
    "cait": "cait_xxs24_224",
    "coat": "coat_tiny",
    "convit": "convit_tiny",
    "convmixer": "convmixer_768_32",
    "convnext": "test_convnext",
    "cpubone": "cpubone_nano",
    "crossvit": "crossvit_tiny_240",
    "csatv2": "csatv2",
    "cspnet": "cs3darknet_focus_s",
    "davit": "davit_tiny",
    "deepseek_vit": "deepseek_vit_412m",
    "deit": "deit_tiny_patch16_224",
    "densenet": "densenet121",
    "dla": "dla46x_c",
    "dpn": "dpn48b",
    "edgenext": "edgenext_xx_small",
    "efficientformer": "efficientformer_l1",
    "efficientformer_v2": "efficientformerv2_s0",
    "efficientnet": "test_efficientnet",
    "efficientvim": "efficientvim_m1",
    "efficientvit_mit": "efficientvit_b0",
    "efficientvit_msra": "efficientvit_m0",
    "eva": "vit_tiny_patch16_dinov3_qkvb",
    "fasternet": "fasternet_t0",
    "fastvit": "fastvit_t8",
    "focalnet": "focalnet_tiny_srf",
    "gcvit": "gcvit_xxtiny",
    "gemma4_vit": "gemma4_vit_167m",
    "ghostnet": "ghostnet_050",
    "hardcorenas": "hardcorenas_b",
    "hgnet": "hgnetv2_b0",
    "hiera": "hiera_tiny_224",
    "hieradet_sam2": "sam2_hiera_tiny",
    "hrnet": "hrnet_w18_small",
    "iformer": "iformer_t",
    "inception_next": "inception_next_atto",
    "inception_resnet_v2": "inception_resnet_v2",
    "inception_v3": "inception_v3",
    "inception_v4": "inception_v4",
    "lcnetv2": "lcnetv2_small",
    "levit": "levit_128s",
    "lowformer": "lowformer_b0",
    "mambaout": "test_mambaout",
    "maxxvit": "maxvit_pico_rw_256",
    "metaformer": "poolformerv2_s12",
    "mlp_mixer": "gmlp_ti16_224",
    "mobilenetv3": "lcnet_035",
    "mobilenetv5": "mobilenetv5_base",
    "mobilevit": "mobilevit_xxs",
    "mvitv2": "mvitv2_tiny",
    "naflexvit": "naflexvit_base_patch16_parfac_gap",
    "nasnet": "nasnetalarge",
    "nest": "nest_tiny",
    "nextvit": "nextvit_small",
    "nfnet": "test_nfnet",
    "pit": "pit_ti_224",
    "pnasnet": "pnasnet5large",
    "pvt_v2": "pvt_v2_b0",
    "qwen3_vit": "qwen3_vit_88m",
    "rdnet": "rdnet_tiny",
    "regnet": "regnetx_002",
    "repghost": "repghostnet_050",
    "repvit": "repvit_m1",
    "res2net": "res2next50",
    "resnest": "resnest14d",
    "resnet": "test_resnet",
    "resnetv2": "resnetv2_18",
    "rexnet": "rexnet_100",
    "selecsls": "selecsls42",
    "senet": "legacy_seresnet18",
    "sequencer": "sequencer2d_s",
    "shvit": "shvit_s1",
    "sknet": "skresnet18",
    "starnet": "starnet_s050",
    "swiftformer": "swiftformer_xs",
    "swin_transformer": "swin_tiny_patch4_window7_224",
    "swin_transformer_v2": "swinv2_tiny_window16_256",
    "swin_transformer_v2_cr": "swinv2_cr_tiny_224",
    "tiny_vit": "tiny_vit_5m_224",
    "tnt": "tnt_s_legacy_patch16_224",
    "tresnet": "tresnet_m",
    "twins": "twins_svt_small",
    "vgg": "vgg11",
    "visformer": "visformer_tiny",
    "vision_transformer": "test_vit",
    "vision_transformer_hybrid": "vit_tiny_r_s16_p8_224",
    "vision_transformer_relpos": "vit_srelpos_small_patch16_224",
    "vision_transformer_sam": "samvit_base_patch16_224",
    "vitamin": "vitamin_small_224",
    "volo": "volo_d1_224",
    "vovnet": "ese_vovnet19b_slim_dw",
    "xception": "legacy_xception",
    "xception_aligned": "xception41p",
    "xcit": "xcit_nano_12_p8_224",
}

# Sizes and depths for the models that are larger than the sweep needs, or that cannot do 128 px.
IMG_SIZE = {
    "byoanet": 256,  # its windows do not divide smaller maps
    "deepseek_vit": 112,
    "gemma4_vit": 96,
    "naflexvit": 64,
    "qwen3_vit": 96,
}
OPTIONS: dict[str, dict[str, object]] = {
    "deepseek_vit": {"depth": 2},
    "gemma4_vit": {"depth": 2},
    "qwen3_vit": {"depth": 2},
}


@dataclass(frozen=True)
class Row:
    """How one module went; ``error`` is empty where it went well."""

    module: str
    model: str
    picture: str = ""
    layout: str = ""
    features: int = 0
    tokens: str = ""
    error: str = ""


def smallest(module: str) -> str:
    """The model of a module with the fewest parameters, counted without making them."""
    counts = {}
    for name in timm.list_models(module=module):
        with torch.device("meta"):
            counts[name] = sum(p.numel() for p in timm.create_model(name, num_classes=0).parameters())
    return min(counts, key=lambda name: counts[name])


def sweep_module(module: str) -> Row:
    """Run one model of a module."""
    model = CHOICES.get(module) or smallest(module)
    config = timm.get_pretrained_cfg(model)
    fixed = config is not None and config.fixed_input_size
    try:
        backbone = create_backbone(
            model, img_size=IMG_SIZE.get(module, None if fixed else SIDE), options=OPTIONS.get(module)
        )
        features = check_shapes_and_gradients(backbone)
        height, width = backbone.preprocessing.size
        grid = backbone.token_grid(height, width)
        tokens = f"{grid[0]} x {grid[1]}" if grid else str(features.shape[1])
        prefix = f" + {backbone.num_prefix_tokens}" if backbone.num_prefix_tokens else ""
        return Row(module, model, f"{height} x {width}", backbone.layout, backbone.num_features, f"{tokens}{prefix}")
    except Exception as error:  # a row of the page, not the end of the sweep
        return Row(module, model, error=f"{type(error).__name__}: {error}".splitlines()[0])
    finally:
        gc.collect()


def page(rows: list[Row]) -> str:
    """The page ``docs/backbones.md``."""
    good = [row for row in rows if not row.error]
    lines = [
        "# Backbones",
        "",
        "`mld.create_model(name, ...)` takes a timm name (`resnet50`, `timm/resnet50`, `resnet50.a1_in1k`),",
        "`torchvision/resnet18`, or for transformers a hub id, a folder or a config class",
        "(`transformers/facebook/dinov2-small`, `transformers/Dinov2`). `mld.replace_head(model, ...)` takes",
        'a model of one of these libraries that is already there. `mld.list_backbones("*vit*")` shows the names.',
        "",
        "A backbone yields a map `(b, c, h, w)` or tokens `(b, t, c)`. Class and register tokens are dropped unless",
        "`keep_prefix_tokens=True`. What a family computes on its map is kept, and so is its final norm, which runs at",
        "each position where the family itself runs it after pooling. Layers that work only on the pooled vector are",
        "removed, so that no parameter is left without a gradient.",
        "",
        f"## timm {timm.__version__}, module by module",
        "",
        f"One small model of every timm module, forward and backward: {len(good)} of {len(rows)} pass.",
        "`layout` is that of the model itself: NHWC maps are permuted. `tokens` are those of the picture size, `+ 1` a",
        "token in front that is dropped by default.",
        f"To save time {', '.join(OPTIONS)} are built with two blocks.",
        "",
        "| module | model swept | picture | layout | features | tokens | ok |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.error:
            lines.append(f"| {row.module} | `{row.model}` | | | | | no |")
        else:
            lines.append(
                f"| {row.module} | `{row.model}` | {row.picture} | {row.layout} | {row.features} | {row.tokens} | yes |"
            )
    lines += ["", "### Exclusions", ""]
    lines += [f"- {row.module} (`{row.model}`): `{row.error}`" for row in rows if row.error] or ["None."]
    lines += [
        "",
        "### Families with a rule of their own",
        "",
        'All others follow timm\'s contract: `reset_classifier(0, global_pool="")`, then',
        "`forward_head(forward_features(x), pre_logits=True)`. A hidden layer behind the norm of a head is",
        "removed, and so is attention that pools.",
        "",
        "| class | why | removed |",
        "|---|---|---|",
    ]
    for name, family in FAMILIES.items():
        removed = ", ".join(f"`{part}`" for part in family.remove)
        lines.append(f"| `{name}` | {family.reason} | {removed} |")
    lines += [
        "",
        "## torchvision",
        "",
        ", ".join(f"`{name}`" for name in torchvision_names()) + ".",
        "",
        "## transformers",
        "",
        "Config classes that the tests cover: " + ", ".join(f"`{name}`" for name in TRANSFORMERS_NAMES) + ".",
        "Other vision models work where their last hidden state is a map, or tokens that cover the picture.",
        "",
        "This page is written by `pytest -m slow tests/backbones/test_sweep.py`.",
        "",
    ]
    return "\n".join(lines)
