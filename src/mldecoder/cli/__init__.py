"""The command line: one verb a file. A verb parses, calls one function and prints; torch is imported inside it."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from mldecoder import __version__
from mldecoder.cli.bench import bench
from mldecoder.cli.calibrate import calibrate
from mldecoder.cli.convert import convert
from mldecoder.cli.data import data
from mldecoder.cli.demo import demo
from mldecoder.cli.eval import evaluate
from mldecoder.cli.explain import explain
from mldecoder.cli.export import export
from mldecoder.cli.predict import PredictCommand, predict
from mldecoder.cli.recipes import recipes
from mldecoder.cli.reproduce import reproduce
from mldecoder.cli.serve import serve
from mldecoder.cli.shard import shard
from mldecoder.cli.train import train
from mldecoder.cli.web import web
from mldecoder.errors import MLDecoderError

__all__ = ["app", "main"]

app = typer.Typer(
    name="mldecoder",
    help="ML-Decoder: from a folder of pictures to a model in use.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(train)
app.command(name="eval")(evaluate)
app.command(cls=PredictCommand)(predict)
app.command()(calibrate)
app.command()(explain)
app.command()(export)
app.command()(web)
app.command()(serve)
app.command()(data)
app.command()(shard)
app.command()(recipes)
app.command()(convert)
app.command()(demo)
app.command()(reproduce)
app.add_typer(bench, name="bench")


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,  # noqa: ARG001
) -> None:
    """Options of every verb; ``--debug`` is read by :func:`main`."""
    if version:
        Console().print(f"mldecoder {__version__}", highlight=False)
        raise typer.Exit


def main() -> None:
    """Run the command line: an error the user can mend is one line, not a traceback."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    try:
        code = app([argument for argument in arguments if argument != "--debug"], standalone_mode=False)
    except typer.TyperException as error:  # a wrong option or argument
        if debug:
            raise
        sentence = _sentence(error)
        sys.exit(_complain(sentence, 2) if sentence else 0)  # no sentence: the help was asked for
    except MLDecoderError as error:
        if debug:
            raise
        sys.exit(_complain(str(error), 1))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(_complain("Stopped.", 130))
    sys.exit(code if isinstance(code, int) else 0)


def _sentence(error: typer.TyperException) -> str:
    format_message = getattr(error, "format_message", None)  # usage errors build their sentence late
    return format_message() if callable(format_message) else str(error)


def _complain(message: str, code: int) -> int:
    Console(stderr=True, soft_wrap=True).print(f"[bold red]mldecoder:[/] {_escaped(message)}", highlight=False)
    return code


def _escaped(message: str) -> str:
    from rich.markup import escape

    return escape(" ".join(message.split()))
