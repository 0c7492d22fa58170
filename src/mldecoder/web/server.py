"""The page as a running server: one address, a folder for uploads that goes with it, and a clean end."""

import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mldecoder.errors import CheckpointError, ConfigError
from mldecoder.web.answer import Answerer

if TYPE_CHECKING:
    import uvicorn

__all__ = ["DEMO", "check_installed", "default_run", "is_loopback", "serve", "sweep"]

_EXAMPLES = "examples"
_KEPT, _PAUSE = 3600.0, 600.0  # seconds that an upload is kept, and between two looks

DEMO = Path("runs/demo/ml-decoder")
"""Where ``mldecoder demo`` leaves its ML-Decoder, as seen from the folder it was started in."""


def check_installed() -> None:
    """Say how to get what the page needs, before a model is loaded."""
    if find_spec("gradio") is None:
        raise ConfigError('The page needs gradio, which is not installed: pip install "mldecoder[web]"')


def default_run() -> Path:
    """The model that the demo trained."""
    from mldecoder.predict.labelled import model_folder

    try:
        model_folder(DEMO)
    except CheckpointError:
        raise ConfigError(
            f"There is no model in {DEMO}. Train the demo's in minutes with `mldecoder demo` (or `make demo`), "
            f"or pass a run: mldecoder web RUN."
        ) from None
    return DEMO


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    answerer: Answerer,
    title: str,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    ready: Callable[[str], None] = lambda _address: None,
) -> None:
    """Serve the page until Ctrl-C; uploads are deleted at the end.

    Args:
        answerer: The model.
        title: What the page calls it.
        host: The address to listen on.
        port: The port; 0 takes any that is free.
        ready: Is told the page's address once it can be opened.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported and by its parts
    with _listen(host, port) as listener, TemporaryDirectory(prefix="mldecoder-web-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        ended = threading.Event()
        threading.Thread(target=_sweep_often, args=(Path(folder), ended), daemon=True).start()
        try:
            server = _server(answerer, title, Path(folder))
            number = listener.getsockname()[1]
            ready(f"http://{f'[{host}]' if ':' in host else host}:{number}")
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # uvicorn ends its work first, then passes Ctrl-C on
            pass
        finally:
            ended.set()
            del os.environ["GRADIO_TEMP_DIR"]


def sweep(folder: Path, older_than: float) -> None:
    """Delete uploads that are older than some seconds, those that broke off in the middle too; examples stay."""
    now = time.time()
    for path in folder.rglob("*"):
        if path.relative_to(folder).parts[0] == _EXAMPLES:
            continue
        with suppress(OSError):  # gone already, or just being written
            if path.is_file() and now - path.stat().st_mtime > older_than:
                path.unlink()


def _sweep_often(folder: Path, ended: threading.Event) -> None:
    while not ended.wait(_PAUSE):
        sweep(folder, _KEPT)


def _server(answerer: Answerer, title: str, folder: Path) -> "uvicorn.Server":
    import uvicorn

    from mldecoder.web.app import build_app

    app = build_app(answerer, title, folder / _EXAMPLES)
    # open pages keep a connection: do not wait for them at the end
    return uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(
            f"The page cannot listen on {host}, port {port}: {reason}. Pass another --port (0: any) or --host."
        ) from None
