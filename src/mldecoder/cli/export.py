"""``mldecoder export``: a model as one file for another runtime."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

__all__ = ["export"]


def export(
    run: Annotated[str, typer.Argument(help="Run folder (its best model), model folder or hub id.")],
    format: Annotated[
        Literal["onnx", "torch", "openvino"], typer.Option(help="Which runtime the file is for.")
    ] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="The file: .onnx, .pt2 or .xml; by default model.* in the run folder.")
    ] = None,
    precision: Annotated[
        Literal["float32", "float16", "int8"], typer.Option(help="Of the weights; int8: in matrix products.")
    ] = "float32",
    with_preprocessing: Annotated[
        bool, typer.Option("--with-preprocessing", help="Take uint8 RGB pictures (b, h, w, 3), normalise inside.")
    ] = False,
    with_sigmoid: Annotated[
        bool, typer.Option("--with-sigmoid", help="Give calibrated probabilities (softmax for single labels).")
    ] = False,
    size: Annotated[int | None, typer.Option(min=1, help="Side of the pictures; the model's own by default.")] = None,
    opset: Annotated[int, typer.Option(help="Version of ONNX's operators.")] = 20,
    tolerance: Annotated[
        float | None, typer.Option(min=0.0, help="Largest difference from the model; else 1e-4, 0.05 or 0.5.")
    ] = None,
) -> None:
    """Write a trained model for onnxruntime, torch.export or OpenVINO, and check the file.

    The file is run on batches of 1 and 7 pictures; where its logits differ from the model's by more than the tolerance
    (1e-4 in float32, 0.05 in float16, 0.5 in int8), it is renamed to NAME.failed and the command fails.

    Example: [bold]mldecoder export runs/last --format onnx --with-preprocessing --with-sigmoid[/]
    """
    from mldecoder.export import export_model
    from mldecoder.export.options import SUFFIXES
    from mldecoder.model import load

    model = load(run)
    name = "model" if precision == "float32" else f"model-{precision}"
    folder = Path(run) if Path(run).is_dir() else Path()
    path = folder / f"{name}{SUFFIXES[format]}" if out is None else out
    with Console(stderr=True).status(f"Exporting and checking {path.name}"):
        made = export_model(
            model,
            path,
            format,
            precision=precision,
            with_preprocessing=with_preprocessing,
            with_sigmoid=with_sigmoid,
            size=size,
            opset=opset,
            tolerance=tolerance,
        )
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{made.path}: {made.bytes / 1e6:.1f} MB, any batch{', any size' if made.any_size else ''}.")
    console.print(
        f"Largest difference of {made.output} from the model: {made.difference:.1e}, {made.tolerance:.1e} allowed."
    )
    for note in made.notes:
        console.print(note, markup=False)
