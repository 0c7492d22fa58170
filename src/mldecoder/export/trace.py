"""A module as a graph whose batch, and where the backbone allows it whose height and width, are free.

Shapes: b batch, h and w height and width.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from mldecoder.errors import ConfigError
from mldecoder.export.wrap import Exportable

__all__ = ["has_free_size", "takes_size", "trace"]


def trace(module: Exportable, inputs: Sequence[Tensor], *, any_size: bool) -> ExportedProgram:
    """Record a module on inputs of two pictures or more.

    Args:
        module: In evaluation mode.
        inputs: Pictures and, for a zero-shot model, text vectors.
        any_size: Whether height and width are left free, as far as the backbone allows it.
    """
    images: dict[int, Any] = {0: Dim.DYNAMIC}
    if any_size:
        first = 1 if module.preprocessing else 2
        images |= {first: Dim.AUTO, first + 1: Dim.AUTO}  # AUTO: fixed where the backbone computes with the number
    shapes = ({"images": images}, {"images": images, "text_vectors": {0: Dim.DYNAMIC}})[len(inputs) - 1]
    try:
        with torch.no_grad():
            # Only the strict way lets the number of labels stay free: heads ask for it by len().
            program = torch.export.export(module, tuple(inputs), dynamic_shapes=shapes, strict=len(inputs) > 1)
    except Exception as error:  # torch raises whatever it met in the model
        what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        name = module.model.config.backbone.name
        raise ConfigError(f"torch cannot record {name} with a free batch ({what}). Take another backbone.") from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # holds paths of this machine
    return program


def has_free_size(program: ExportedProgram, *, channels_last: bool) -> bool:
    """Whether height and width of the recorded graph are free."""
    images = next(node for node in program.graph.nodes if node.name == program.graph_signature.user_inputs[0])
    first = 1 if channels_last else 2
    return all(isinstance(side, torch.SymInt) for side in images.meta["val"].shape[first : first + 2])


def takes_size(module: Exportable, inputs: Sequence[Tensor]) -> bool:
    """Whether the model itself takes these pictures."""
    try:
        with torch.inference_mode():
            module(*inputs)
    except Exception:  # a backbone says no in its own way: AssertionError, RuntimeError, ValueError
        return False
    return True
