"""The server as it runs, on Ray Serve: right answers, clear refusals, a quick no when it is too much."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from mldecoder.errors import ConfigError
from mldecoder.predict import Predictor
from mldecoder.serve import Settings
from mldecoder.serve.server import serving
from tests.predict.pictures import tiny
from tests.serve.test_served_model import png


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def model() -> Any:  # noqa: ANN401
    return tiny()


@pytest.fixture(scope="module")
def right(model: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """What ``predict`` says about the first eight pictures."""
    said = [one.to_dict() for one in Predictor(model, threshold=0.3)([png(i) for i in range(8)])]
    return [{"tags": one["tags"]} for one in said]


def same(answer: dict[str, Any], want: dict[str, Any]) -> bool:
    pairs = list(zip(answer["tags"], want["tags"], strict=True))
    return all(a["label"] == b["label"] and abs(a["score"] - b["score"]) < 1e-5 for a, b in pairs)


@pytest.fixture(scope="module")
def address(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:  # noqa: ANN401
    """A server that can have little to do at a time."""
    folder = tmp_path_factory.mktemp("run")
    model.save_pretrained(folder)
    settings = Settings(str(folder), threshold=0.3, replicas=1, batch_size=2, queue=1)
    port = free_port()
    with serving(settings, port=port) as status:
        assert status() == "RUNNING"
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1, port {port}"), serving(settings, port=port):
            pass
        yield f"http://127.0.0.1:{port}"


def test_answers_are_those_of_predict_and_junk_is_told_so(address: str, right: list[dict[str, Any]]) -> None:
    with httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/ready").status_code == client.get("/health").status_code == 200
        for i, want in enumerate(right[:3]):
            assert same(client.post("/predict", content=png(i)).json(), want)
        junk = client.post("/predict", content=b"junk")
        assert (junk.status_code, "not a picture" in junk.json()["error"]) == (422, True)
        assert client.post("/predict", content=b"", headers={"content-type": "text/html"}).status_code == 415
        assert 'mldecoder_requests_total{status="200"} 3.0' in client.get("/metrics").text


def test_more_than_the_model_can_do_is_answered_503_and_the_rest_is_right(
    address: str, right: list[dict[str, Any]]
) -> None:
    gate = threading.Barrier(32)

    def ask(i: int) -> int:
        with httpx.Client(base_url=address, timeout=60) as client:
            gate.wait()
            answer = client.post("/predict", content=png(i % 8))
            if answer.status_code == 200:
                assert same(answer.json(), right[i % 8])
            else:
                assert answer.json()["error"].startswith("The model has as much to do as it may have")
                assert answer.headers["retry-after"] == "1"
            return int(answer.status_code)

    with ThreadPoolExecutor(32) as pool:
        statuses = Counter(status for _ in range(3) for status in pool.map(ask, range(32)))
    assert set(statuses) == {200, 503}
    with httpx.Client(base_url=address, timeout=60) as client:  # and it is itself again
        assert client.post("/predict", content=png(0)).status_code == 200


@pytest.mark.slow
def test_a_copy_that_is_killed_takes_no_accepted_picture_with_it(
    model: Any,  # noqa: ANN401
    right: list[dict[str, Any]],
    tmp_path: Path,
) -> None:
    model.save_pretrained(tmp_path)
    port, statuses, stop = free_port(), Counter[int](), threading.Event()
    wrong: list[str] = []

    def ask(i: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            while not stop.is_set():
                answer = client.post("/predict", content=b"junk" if i == 0 else png(i))
                statuses[answer.status_code] += 1
                if answer.status_code == 200 and not same(answer.json(), right[i]):
                    wrong.append(answer.text)

    with serving(Settings(str(tmp_path), threshold=0.3, replicas=2), port=port):
        copies = [
            process
            for process in psutil.Process().children(recursive=True)
            if (process.cmdline() or [""])[0].startswith("ray::ServeReplica:mldecoder:Model")
        ]
        assert len(copies) == 2
        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(ask, i) for i in range(8)]
            while statuses[200] < 100 and not any(one.done() for one in asking):
                stop.wait(0.05)
            copies[0].kill()
            before = statuses[200]
            while statuses[200] < before + 300 and not any(one.done() for one in asking):
                stop.wait(0.05)
            stop.set()
            for one in asking:
                one.result()
    assert not wrong
    assert set(statuses) <= {200, 422, 503}
    assert statuses[200] >= before + 300
