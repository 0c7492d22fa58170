"""``mldecoder serve``: a model behind an address, for programs."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mldecoder.cli.words import read_labels, read_threshold

__all__ = ["serve"]


def serve(
    run: Annotated[str, typer.Argument(help="Run folder (its best model), model folder or hub id.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets others in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    labels: Annotated[
        str | None, typer.Option(help='Labels to score, as in "dog, cat", or a file with one a line.')
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="At most this many tags a picture.")] = None,
    threshold: Annotated[str, typer.Option(help="Score from which a tag is given; auto: as calibrated.")] = "auto",
    replicas: Annotated[int | None, typer.Option(min=1, help="Copies of the model; as many as fit by default.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Most pictures scored together.")] = 32,
    batch_wait: Annotated[float, typer.Option(min=0, help="Milliseconds a picture waits for others.")] = 5.0,
    queue: Annotated[int | None, typer.Option(min=1, help="Pictures that may wait; more are answered 503.")] = None,
    max_upload: Annotated[str, typer.Option(help="Largest file that is taken.")] = "20MB",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a body to come, and for its answer.")] = 30.0,
    token: Annotated[
        str | None, typer.Option(envvar="MLDECODER_TOKEN", help="Let in only who sends it as a bearer token.")
    ] = None,
    ray: Annotated[str, typer.Option(metavar="ADDRESS", help="Ray to work on: HOST:PORT or auto.")] = "local",
) -> None:
    """Serve a model over HTTP: send a picture, get its tags.

    Ctrl-C stops it. The page at the address says what it takes; /metrics counts for Prometheus.

    Example: [bold]mldecoder serve runs/last --port 8000[/]
    """
    from mldecoder.predict.lake_ray import check_installed
    from mldecoder.serve import Settings

    check_installed()
    least = read_threshold(threshold)
    names = read_labels(labels)

    from mldecoder.serve.server import check_free, check_model, serving
    from mldecoder.web.limits import parse_size
    from mldecoder.web.server import is_loopback

    settings = Settings(
        run=str(Path(run).absolute()) if Path(run).exists() else run,
        labels=None if names is None else tuple(names),
        top_k=top_k,
        threshold=None if least == "auto" else least,
        replicas=replicas,
        batch_size=batch_size,
        batch_wait=batch_wait / 1000,
        queue=queue,
        max_bytes=parse_size(max_upload),
        timeout=timeout,
        token=token,
    )
    console = Console(soft_wrap=True, highlight=False)
    check_free(host, port)
    check_model(settings)
    console.print(f"Starting {run} ...", markup=False)
    with serving(settings, host=host, port=port, address=ray):
        shown = f"[{host}]" if ":" in host else host
        console.print(f"{run} is at http://{shown}:{port} - Ctrl-C stops it.", markup=False)
        if token is None and not is_loopback(host):
            console.print("Everybody who can reach this machine can ask: pass --token to change that.", markup=False)
        try:
            while True:
                time.sleep(1.0)
        except KeyboardInterrupt:
            console.print("Stopping.")
