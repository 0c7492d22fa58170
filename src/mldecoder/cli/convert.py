"""``mldecoder convert``: an old checkpoint becomes a model folder."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["convert"]


def convert(
    old: Annotated[Path, typer.Argument(help="Old checkpoint: .pth, .pt, .bin or .safetensors.")],
    folder: Annotated[Path, typer.Argument(help="Where to write the model folder.")],
    backbone: Annotated[str, typer.Option(help="timm name of its backbone; the official TResNet-L is tresnet_v2_l.")],
    labels: Annotated[Path | None, typer.Option(help="Text file with one class name a line.")] = None,
    image_size: Annotated[int | None, typer.Option(min=1, help="Side of the pictures it was trained on.")] = None,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads; they leave no trace in the file.")] = 8,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
) -> None:
    """Turn a checkpoint of the official code or of timm into a model folder.

    Example: [bold]mldecoder convert tresnet_l_COCO__448_90_0.pth coco/ --backbone tresnet_v2_l --image-size 448[/]
    """
    from mldecoder.convert import model_from_file
    from mldecoder.errors import ConfigError

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file. Pass a folder for the model.")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise ConfigError(f"{folder} is not empty. Pass another folder, or --force to write into it.")
    if labels is not None and not labels.is_file():
        raise ConfigError(f"There is no file {labels}. --labels takes a text file with one class name a line.")
    names = labels.read_text(encoding="utf-8").splitlines() if labels else None
    model = model_from_file(old, backbone, labels=names, image_size=image_size, heads=heads)
    model.save_pretrained(folder)
    config = model.config
    Console().print(
        f"Wrote {folder}: {config.backbone.name} at {config.preprocessing.size[0]} px, "
        f"{model.num_classes} classes ({', '.join(config.labels[:3])}, ...).",
        highlight=False,
        soft_wrap=True,
    )
