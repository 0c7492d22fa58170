"""``mldecoder web``: a page to try a model on."""

from typing import Annotated

import typer
from rich.console import Console

__all__ = ["web"]


def web(
    run: Annotated[
        str | None, typer.Argument(help="Run folder (its best model), model folder or hub id; the demo's by default.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets others in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 7860,
    max_upload: Annotated[str, typer.Option(help="Largest file that is taken.")] = "20MB",
) -> None:
    """Open a page: drop a photo, see its tags, tick one to see where the model looked.

    Everything stays on this machine. Ctrl-C stops the page.

    Example: [bold]mldecoder web runs/last[/]
    """
    from mldecoder.web.limits import parse_size
    from mldecoder.web.server import check_installed, default_run, is_loopback, serve

    max_bytes = parse_size(max_upload)
    check_installed()
    chosen = str(default_run()) if run is None else run

    from mldecoder.model import load
    from mldecoder.predict.device import best_device
    from mldecoder.web.answer import Answerer

    answerer = Answerer(load(chosen).to(best_device()), max_bytes=max_bytes)
    console = Console(soft_wrap=True, highlight=False)

    def ready(address: str) -> None:
        console.print(f"{chosen} is at {address} - Ctrl-C stops it.", markup=False)
        if not is_loopback(host):
            console.print("Everybody who can reach this machine can use the page.", markup=False)

    serve(answerer, chosen, host=host, port=port, ready=ready)
    console.print("Stopped.")
