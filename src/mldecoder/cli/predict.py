"""``mldecoder predict``: tags for pictures."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer.core import TyperCommand

from mldecoder.cli.words import read_labels, read_threshold

if TYPE_CHECKING:
    from collections.abc import Callable

    from mldecoder.predict import Predictor
    from mldecoder.predict.files import Summary
    from mldecoder.predict.meter import Meter
    from mldecoder.predict.output import Format

__all__ = ["PredictCommand", "predict"]

_ADDRESS = re.compile(r"auto|local|ray://.+|[^/\\]+:\d+")


class PredictCommand(TyperCommand):
    """The verb, with an option whose value may be left out: ``--ray`` alone means a Ray of its own."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Write the address that was left out."""
        full: list[str] = []
        for word, after in zip(args, [*args[1:], ""], strict=True):
            full += [word, "local"] if word == "--ray" and not _ADDRESS.fullmatch(after) else [word]
        return super().parse_args(ctx, full)


def predict(
    run: Annotated[str, typer.Argument(help="Run folder (its best model), model folder or hub id.")],
    paths: Annotated[
        list[Path], typer.Argument(help="Pictures, folders of them, lists (.txt, a path a line), tar shards.")
    ],
    labels: Annotated[
        str | None, typer.Option(help='Labels to score, as in "dog, cat", or a file with one a line.')
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="At most this many tags a picture.")] = None,
    threshold: Annotated[str, typer.Option(help="Score from which a tag is given; auto: as calibrated.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Write JSON lines to this file; - prints them.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write CSV to this file; - prints it.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write Parquet parts to this folder.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin the output anew, do not go on.")] = False,
    ray: Annotated[
        str | None,
        typer.Option(metavar="[ADDRESS]", help="Work on Ray: the one at HOST:PORT or auto; alone, one that it starts."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Pictures scored together; 32, on Ray as suits the device.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that decode pictures.")] = None,
    timing: Annotated[bool, typer.Option("--timing", help="Say where the time of one picture goes.")] = False,
) -> None:
    """Tag pictures with a trained model.

    An output that is there already is gone on with. Files that cannot be read are listed in OUT.broken.csv.

    Example: [bold]mldecoder predict runs/last photos/ --csv tags.csv[/]

    On many machines: [bold]mldecoder predict runs/last photos/ --parquet tags/ --ray head:6379[/]
    """
    from time import perf_counter

    from mldecoder.errors import ConfigError
    from mldecoder.model import load
    from mldecoder.predict import Predictor
    from mldecoder.predict.device import best_device
    from mldecoder.predict.files import check_paths, tag_files

    outputs: list[tuple[Format, Path]] = []
    if json is not None:
        outputs.append(("json", json))
    if csv is not None:
        outputs.append(("csv", csv))
    if parquet is not None:
        outputs.append(("parquet", parquet))
    if len(outputs) > 1:
        raise ConfigError("Results go to one place: pass one of --json, --csv and --parquet.")
    if ray is not None and (parquet is None or timing):
        raise ConfigError("On Ray results go to Parquet: pass a folder with --parquet, and no --timing.")
    if ray is not None:
        from mldecoder.predict.lake_ray import check_installed

        check_installed()
    names, least = read_labels(labels), read_threshold(threshold)
    check_paths(paths)
    start = perf_counter()
    model = load(run) if ray is not None else load(run).to(best_device())
    loaded = perf_counter() - start
    predictor = Predictor(
        model, labels=names, top_k=top_k, threshold=least, batch_size=batch_size or 32, workers=workers
    )
    if timing:
        _print_timing(predictor, paths, loaded)
    elif ray is not None and parquet is not None and str(parquet) != "-":
        from mldecoder.predict.lake import tag_lake

        _write(
            lambda meter: tag_lake(
                predictor,
                paths,
                parquet,
                address=ray,
                batch_size=batch_size,
                workers=workers,
                overwrite=overwrite,
                advance=meter.advance,
            ),
            parquet,
        )
    elif outputs and str(outputs[0][1]) != "-":
        format, output = outputs[0]
        _write(
            lambda meter: tag_files(predictor, paths, output, format, overwrite=overwrite, advance=meter.advance),
            output,
        )
    else:
        _print(predictor, paths, outputs[0][0] if outputs else None, asked=names is not None)


def _write(tag: "Callable[[Meter], Summary]", output: Path) -> None:
    from mldecoder.predict.meter import Meter

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    with Meter("pictures", console) as meter:
        summary = tag(meter)
    earlier = f" {summary.before:,} were done before." if summary.before else ""
    rate = summary.tagged / max(summary.seconds, 1e-9)
    console.print(
        f"{summary.tagged:,} pictures tagged in {summary.seconds:.1f} s ({rate:.3g} a second), in {output}.{earlier}",
        markup=False,
    )
    if summary.broken:
        console.print(f"{summary.broken:,} could not be read, listed in {summary.broken_path}.", markup=False)


def _print(predictor: "Predictor", paths: list[Path], format: "Format | None", *, asked: bool) -> None:
    from mldecoder.errors import ConfigError
    from mldecoder.predict.ahead import quiet_pillow
    from mldecoder.predict.listed import listed
    from mldecoder.predict.output import csv_lines, json_lines

    if format == "parquet":
        raise ConfigError("Parquet cannot be printed. Pass a folder: --parquet tags.parquet.")
    console = Console(soft_wrap=True, highlight=False)
    header, broken = True, 0
    with quiet_pillow():
        for batch in predictor.batches(listed(paths)):
            whole = [one for one in batch if one.error is None]
            if format is not None:
                sys.stdout.buffer.write(json_lines(whole) if format == "json" else csv_lines(whole, header=header))
                sys.stdout.buffer.flush()
                header = False
            else:
                for one in whole:
                    console.print(one.told() if asked else str(one), markup=False)
            for one in batch:
                if one.error is not None:
                    broken += 1
                    Console(stderr=True, soft_wrap=True, highlight=False).print(str(one), markup=False)
    if broken:
        Console(stderr=True, highlight=False).print(f"{broken:,} could not be read.")


def _print_timing(predictor: "Predictor", paths: list[Path], loaded: float) -> None:
    """Time the first picture; one pass before it is not counted, because the first one allocates."""
    from mldecoder.predict.listed import listed

    source = next(iter(listed(paths)))
    predictor.timed(source)
    prediction, seconds = predictor.timed(source)
    console = Console(soft_wrap=True, highlight=False)
    console.print(str(prediction), markup=False)
    total = sum(seconds.values())
    steps = ", ".join(f"{step} {1000 * took:.1f} ms ({took / total:.0%})" for step, took in seconds.items())
    console.print(f"load {1000 * loaded:.0f} ms; then {1000 * total:.1f} ms a picture: {steps}")
