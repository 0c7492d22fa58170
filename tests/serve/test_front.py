"""What the world sees of a server, with a model that is a function: every refusal is one clear line."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mldecoder.errors import ConfigError
from mldecoder.serve import Settings
from mldecoder.serve.front import BusyError, build_front


async def said(content: bytes, all_scores: bool) -> dict[str, Any]:
    if content == b"busy":
        raise BusyError("The model has as much to do as it may have. Try again later.")
    if content == b"slow":
        await asyncio.sleep(60)
    if content == b"junk":
        return {"status": 422, "error": "The body must be a whole picture."}
    return {"tags": [], "length": len(content), "all": all_scores}


async def yes() -> bool:
    return True


async def no() -> bool:
    return False


def asked(method: str, path: str, *, settings: Settings | None = None, is_ready: bool = True, **options: Any) -> Any:  # noqa: ANN401
    """One request to a server of its own."""
    app = build_front(settings or Settings("run", max_bytes=100, timeout=0.2), said, yes if is_ready else no)

    async def ask() -> Any:  # noqa: ANN401
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            first = await client.request(method, path, **options)
            return first, (await client.get("/metrics")).text

    return asyncio.run(ask())


def test_a_picture_goes_in_and_the_answer_comes_out_and_is_counted() -> None:
    answer, metrics = asked(
        "POST", "/predict?all_scores=true", content=b"x" * 100, headers={"content-type": "image/png"}
    )
    assert answer.json() == {"tags": [], "length": 100, "all": True}
    assert 'mldecoder_requests_total{status="200"} 1.0' in metrics
    assert "mldecoder_body_bytes_total 100.0" in metrics
    assert "mldecoder_in_flight 0.0" in metrics
    assert "mldecoder_seconds_count 1.0" in metrics


async def dribble(*, pause: float, pieces: int) -> AsyncIterator[bytes]:
    for _ in range(pieces):
        yield b"x" * 30
        await asyncio.sleep(pause)


@pytest.mark.parametrize(
    ("options", "status", "line"),
    [
        ({"content": b"x" * 101}, 413, "The body must have at most 100 bytes."),
        ({"content": b"x", "headers": {"content-length": "many"}}, 413, "The body must have at most 100 bytes."),
        ({"content": b"x", "headers": {"content-type": "text/html"}}, 415, "Content-Type must be image/... or app"),
        ({"content": b"junk"}, 422, "The body must be a whole picture."),
        ({"content": b"busy"}, 503, "The model has as much to do as it may have."),
        ({"content": b"slow"}, 503, "The model did not get to it within 0.2 seconds."),
    ],
)
def test_what_is_refused_gets_a_status_and_one_line(options: dict[str, Any], status: int, line: str) -> None:
    answer, metrics = asked("POST", "/predict", **options)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(line)
    assert "\n" not in answer.json()["error"]
    assert f'mldecoder_requests_total{{status="{status}"}} 1.0' in metrics
    assert ("retry-after" in answer.headers) == (status == 503)


def test_bodies_without_an_announced_length_are_counted_as_they_come() -> None:
    answer, _ = asked("POST", "/predict", content=dribble(pause=0, pieces=4))
    assert answer.status_code == 413
    answer, _ = asked("POST", "/predict", content=dribble(pause=0.15, pieces=3))
    assert (answer.status_code, answer.json()) == (408, {"error": "The body must come within 0.2 seconds."})


def test_who_has_no_token_is_told_how_to_send_it() -> None:
    settings = Settings("run", token="open-sesame")
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic open-sesame"}):
        answer, metrics = asked("POST", "/predict", settings=settings, content=b"x", headers=headers)
        assert answer.status_code == 401
        assert "Authorization: Bearer TOKEN" in answer.json()["error"]
        assert "needs a token" in metrics
    right = {"authorization": "Bearer open-sesame"}
    assert asked("POST", "/predict", settings=settings, content=b"x", headers=right)[0].status_code == 200
    assert asked("GET", "/health", settings=settings)[0].status_code == 200
    assert asked("GET", "/metrics", settings=settings, headers=right)[0].status_code == 200


def test_health_is_about_the_server_and_readiness_about_the_model() -> None:
    assert asked("GET", "/health", is_ready=False)[0].json() == {"status": "ok"}
    assert asked("GET", "/ready")[0].json() == {"status": "ready"}
    assert asked("GET", "/ready", is_ready=False)[0].status_code == 503


def test_the_page_tells_every_route_and_needs_nothing_from_elsewhere() -> None:
    page = asked("GET", "/docs")[0].text
    description = asked("GET", "/openapi.json")[0].json()
    assert set(description["paths"]) == {"/predict", "/health", "/ready", "/metrics"}
    assert all(path in page for path in description["paths"])
    assert {"408", "413", "415", "422", "503"} <= set(description["paths"]["/predict"]["post"]["responses"])
    assert "https://" not in page
    assert page.count("http://") == page.count("http://127.0.0.1:8000")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 0}, "replicas must be at least 1, got 0."),
        ({"timeout": 0.0}, "timeout must be more than 0 seconds"),
        ({"batch_wait": -1.0}, "batch_wait must not be negative"),
        ({"token": "two words"}, "The token must be one word"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings("run", **options)
