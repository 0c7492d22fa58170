"""A small web server for shards that counts what it is asked, and fails on demand."""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Served:
    """A folder on loopback. ``failures[name]`` requests for a file are answered with 503 before it works."""

    def __init__(self, folder: Path, *, ranges: bool = True) -> None:
        self.folder, self.ranges = folder, ranges
        self.asked: Counter[str] = Counter()
        self.sent = 0
        self.failures: Counter[str] = Counter()
        self.cut: set[str] = set()  # files of which only half comes, after which the line is dead
        self.lock = threading.Lock()
        self.url = ""


@contextmanager
def served(folder: Path, *, ranges: bool = True) -> Iterator[Served]:
    """Serve a folder while the context lasts."""
    state = Served(folder, ranges=ranges)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.partition("?")[0].lstrip("/")
            with state.lock:
                state.asked[name] += 1
                fails = state.failures[name] > 0
                state.failures[name] -= fails
            path = state.folder / name
            if fails:
                self.send_error(503)
                return
            if not path.is_file():
                self.send_error(404)
                return
            data = path.read_bytes()
            match = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if state.ranges else None
            if match:
                data = data[int(match[1]) : int(match[2]) + 1]
            self.send_response(206 if match else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with state.lock:
                state.sent += len(data)
            if name in state.cut:
                state.cut.remove(name)
                data = data[: len(data) // 2]
                self.close_connection = True
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
