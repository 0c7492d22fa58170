"""A model on disk: the files of its folder, their check, and the way back into a module."""

from collections.abc import Callable
from json import JSONDecodeError, loads
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from mldecoder.backbones import Backbone, create_backbone
from mldecoder.config import ModelConfig, TextConfig, parse
from mldecoder.errors import CheckpointError
from mldecoder.heads import ZeroShotMLDecoder
from mldecoder.heads.split import SplitGroupLinear
from mldecoder.label_words import LabelWords

__all__ = ["CONFIG", "WEIGHTS", "check_rebuildable", "fill", "read_config", "rebuild", "write"]

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
M = TypeVar("M", bound=nn.Module)


def write(
    model: nn.Module, config: ModelConfig, folder: Path, save: Callable[[nn.Module, Path], None] | None = None
) -> None:
    """Write the model folder; a file is complete or not there. ``save`` writes the weights in a way of its own."""
    with TemporaryDirectory(dir=folder, prefix=".writing-") as name:
        parts = Path(name)
        (save or _save)(model, parts / WEIGHTS)
        (parts / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
        (parts / CARD).write_text(_model_card(config), encoding="utf-8")
        for file in (WEIGHTS, CONFIG, CARD):
            (parts / file).replace(folder / file)


def _save(model: nn.Module, file: Path) -> None:
    if any(isinstance(part, SplitGroupLinear) for part in model.modules()):
        raise CheckpointError(
            "This process has only a part of the group layer. Save with mldecoder.model.split_folder.save_split, "
            "in all processes."
        )
    state = {key: value.detach().contiguous() for key, value in model.state_dict().items()}
    save_file(state, file, metadata={"format": "pt"})


def rebuild(config: ModelConfig) -> tuple[Backbone, nn.Module, LabelWords | None]:
    """Backbone, head and words as a config describes them, untrained."""
    described = config.backbone
    backbone = create_backbone(
        described.name,
        img_size=described.img_size,
        in_chans=described.in_chans,
        keep_prefix_tokens=described.keep_prefix_tokens,
        options=described.options,
    )
    head, words = config.head.build(len(config.labels), backbone.num_features), None
    if isinstance(head, ZeroShotMLDecoder):  # the file brings the vectors, so that no text encoder is needed
        words = LabelWords.empty(config.text or TextConfig(), len(config.labels), head.text_width)
    return backbone, head, words


def fill(model: M, weights: str | Path, map_location: str) -> M:
    """Give a model the weights of a file, in their precision."""
    try:
        state = load_file(weights, device=map_location)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{weights} cannot be read: {error}") from error
    floats = {value.dtype for value in state.values() if value.is_floating_point()}
    if len(floats) == 1:
        model.to(floats.pop())  # a model saved in half precision comes back in it
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise CheckpointError(f"{weights} does not fit its {CONFIG}: {str(error).splitlines()[-1].strip()}") from error
    return model.to(map_location).eval()


def read_config(path: Path) -> ModelConfig:
    """The config of a folder, checked."""
    try:
        data = loads(path.read_text(encoding="utf-8"))
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}.") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != 1:
        raise CheckpointError(
            f"{path} has schema version {version!r}; this mldecoder reads version 1. Update mldecoder."
        )
    return parse(ModelConfig, data, str(path))


def check_rebuildable(backbone: Backbone, config: ModelConfig) -> None:
    """Refuse to save a model whose config would not bring its backbone back."""
    described = config.backbone
    again = create_backbone(
        described.name, img_size=described.img_size, in_chans=described.in_chans, options=described.options
    ).state_dict()
    own = backbone.state_dict()
    if {key: value.shape for key, value in own.items()} != {key: value.shape for key, value in again.items()}:
        raise CheckpointError(
            f"This {described.name} was built with options that only its builder knows, so a folder could not bring it "
            f"back. Build it with mld.create_model(..., backbone_options={{...}}), or save its state_dict()."
        )


def _model_card(config: ModelConfig) -> str:
    some = ", ".join(config.labels[:20]) + (", ..." if len(config.labels) > 20 else "")
    metrics = "\n".join(f"- {name}: {value:.2f}" for name, value in config.metrics.items())
    words = "" if config.text is None else f"\nAny other words can be asked for; their vectors: {config.text.encoder}\n"
    return f"""---
library_name: mldecoder
tags: [ml-decoder, image-classification]
---
# {config.backbone.name} with a {config.head.kind} head

{len(config.labels)} labels ({config.task}): {some}
{words}
```python
import mldecoder as mld

model = mld.load("this folder")
```
{metrics}
"""
