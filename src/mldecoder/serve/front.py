"""What the world sees: a picture in, tags out, and one clear line for everything that is refused.

Nothing here knows Ray or torch: the model is a function that is awaited.
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from mldecoder.serve.page import page_of
from mldecoder.serve.settings import Settings

__all__ = ["BusyError", "Tag", "build_front"]

Tag = Callable[[bytes, bool], Awaitable[dict[str, Any]]]
"""From the bytes of a picture, and whether all scores are wanted, to the answer, or its ``status`` and ``error``."""

_TYPES = ("image/", "application/octet-stream")
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_REFUSED: dict[int | str, dict[str, Any]] = {
    401: {"description": "The token is missing or wrong."},
    408: {"description": "The body did not come in time."},
    413: {"description": "The body or the picture is too large."},
    415: {"description": "The body is not announced as a picture."},
    422: {"description": "The body is not a whole picture."},
    503: {"description": "More is asked than the model can do; try again after `Retry-After` seconds."},
}


class BusyError(Exception):
    """The model has as much to do as it may have; the message says it in one line."""


def build_front(settings: Settings, tag: Tag, ready: Callable[[], Awaitable[bool]]) -> FastAPI:
    """The routes of a server.

    Args:
        settings: Limits and token.
        tag: The model.
        ready: Whether the model can be asked.
    """
    app = FastAPI(title="mldecoder", description="Tags for pictures.", docs_url=None, redoc_url=None)
    registry = CollectorRegistry()
    count = Counter("mldecoder_requests", "Pictures asked for, by status.", ["status"], registry=registry)
    took = Histogram("mldecoder_seconds", "Seconds to an answer.", registry=registry, buckets=_SECONDS)
    size = Counter("mldecoder_body_bytes", "Bytes of bodies.", registry=registry)
    going = Gauge("mldecoder_in_flight", "Pictures asked for and not answered yet.", registry=registry)

    @app.post("/predict", summary="Tag one picture", responses=_REFUSED)
    async def predict(
        request: Request,
        all_scores: bool = Query(False, description="Also the score of every label."),
    ) -> Response:
        """Send the bytes of a picture file as the body, with a Content-Type such as image/jpeg."""
        start = time.perf_counter()
        with going.track_inprogress():
            answer = await _answered(request, settings, tag, all_scores, size.inc)
        status = answer.pop("status", 200)
        count.labels(str(status)).inc()
        took.observe(time.perf_counter() - start)
        headers = {"Retry-After": "1"} if status == 503 else {"Connection": "close"} if status in {408, 413} else {}
        return JSONResponse(answer, status, headers=headers)

    @app.get("/health", summary="Whether the server runs")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready", summary="Whether the model can be asked", responses={503: {"description": "Not yet."}})
    async def readiness() -> Response:
        return JSONResponse({"status": "ready"}) if await ready() else JSONResponse({"status": "not ready"}, 503)

    @app.get("/metrics", summary="Counts and times for Prometheus", responses={401: _REFUSED[401]})
    async def metrics(request: Request) -> Response:
        if not _allowed(request, settings.token):
            return JSONResponse(_NO_TOKEN, 401, headers={"WWW-Authenticate": "Bearer"})
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page_of(app.openapi()))

    return app


_NO_TOKEN = {"error": "This server needs a token: send the header Authorization: Bearer TOKEN."}


class _RefusedError(Exception):
    """A status and the line that goes with it."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


async def _answered(
    request: Request, settings: Settings, tag: Tag, all_scores: bool, counted: Callable[[float], None]
) -> dict[str, Any]:
    """The answer, or the status and the line of a refusal."""
    try:
        _check_head(request, settings)
        content = await _body(request, settings)
        counted(len(content))
        async with asyncio.timeout(settings.timeout):
            return await tag(content, all_scores)
    except _RefusedError as error:
        return {"status": error.status, "error": str(error)}
    except BusyError as error:
        return {"status": 503, "error": str(error)}
    except TimeoutError:
        line = f"The model did not get to it within {settings.timeout:g} seconds. Try again later."
        return {"status": 503, "error": line}


def _check_head(request: Request, settings: Settings) -> None:
    """Refuse what can be told before the body has come."""
    if not _allowed(request, settings.token):
        raise _RefusedError(401, _NO_TOKEN["error"])
    kind = request.headers.get("content-type", "application/octet-stream").lower()
    if not kind.startswith(_TYPES):
        raise _RefusedError(415, f"Content-Type must be image/... or application/octet-stream, got {kind[:80]!r}.")
    announced = request.headers.get("content-length", "0")
    if not announced.isdigit() or int(announced) > settings.max_bytes:
        raise _RefusedError(413, _too_large(settings))


async def _body(request: Request, settings: Settings) -> bytes:
    """The body, within its limits of size and time."""
    content = bytearray()
    try:
        async with asyncio.timeout(settings.timeout):
            async for chunk in request.stream():
                content += chunk
                if len(content) > settings.max_bytes:
                    raise _RefusedError(413, _too_large(settings))
    except TimeoutError:
        raise _RefusedError(408, f"The body must come within {settings.timeout:g} seconds.") from None
    return bytes(content)


def _too_large(settings: Settings) -> str:
    return f"The body must have at most {settings.max_bytes:,} bytes."


def _allowed(request: Request, token: str | None) -> bool:
    if token is None:
        return True
    kind, _, sent = request.headers.get("authorization", "").partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(sent.strip().encode(), token.encode())
