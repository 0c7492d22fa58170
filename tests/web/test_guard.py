"""What stands before the page, without a server."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("starlette", reason='pip install "mldecoder[web]"')

from mldecoder.web.guard import ContentPolicy, LimitBody


async def _echo(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
    """An application that reads a body and says how long it was."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


async def _stubborn(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
    """An application that answers whatever goes wrong."""
    try:
        await _echo(scope, receive, send)
    except Exception:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"oh"})
        raise


def ask(app: Any, parts: Sequence[bytes], *, announced: bytes | None = None) -> list[dict[str, Any]]:  # noqa: ANN401
    """What an application sends when a body comes in parts."""
    sent: list[dict[str, Any]] = []
    waiting = [{"type": "http.request", "body": part, "more_body": i + 1 < len(parts)} for i, part in enumerate(parts)]

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [] if announced is None else [(b"content-length", announced)]
    asyncio.run(app({"type": "http", "headers": headers}, receive, send))
    return sent


@pytest.mark.parametrize("announced", [None, b"10"])
def test_a_body_at_the_limit_passes(announced: bytes | None) -> None:
    sent = ask(LimitBody(_echo, max_bytes=10), [b"12345", b"67890"], announced=announced)
    assert [one.get("status", one.get("body")) for one in sent] == [200, b"10"]


@pytest.mark.parametrize("announced", [None, b"11", b"many"])
@pytest.mark.parametrize("app", [_echo, _stubborn])
@pytest.mark.parametrize("parts", [[b"12345", b"678901", b"2345"], [b"12345", b"678901"]])
def test_a_larger_body_is_refused_once_and_read_to_its_end(
    app: Any,  # noqa: ANN401
    announced: bytes | None,
    parts: list[bytes],
) -> None:
    sent = ask(LimitBody(app, max_bytes=10), parts, announced=announced)
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 413
    assert b"at most 10 B" in sent[1]["body"]


def test_the_browser_is_told_to_stay_here() -> None:
    headers = dict(ask(ContentPolicy(_echo), [b""])[0]["headers"])
    assert b"connect-src 'self'" in headers[b"content-security-policy"]
    assert b"http" not in headers[b"content-security-policy"]
