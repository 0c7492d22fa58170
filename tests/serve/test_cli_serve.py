"""``mldecoder serve`` as a user runs it."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from mldecoder.cli.serve import serve
from mldecoder.errors import MLDecoderError
from tests.cli import command, environment
from tests.predict.pictures import tiny
from tests.serve.test_served_model import png
from tests.serve.test_serving import free_port


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    tiny().save_pretrained(folder / "best")
    return folder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": "high"}, "--threshold must be auto or a number between 0 and 1, got 'high'."),
        ({"labels": "red rng"}, r"no label 'red rng'. Did you mean 'red ring'\?"),
        ({"max_upload": "much"}, "A size must be a number with B, KB, MB or GB behind"),
        ({"token": "two words"}, "The token must be one word"),
        ({"host": "192.0.2.77"}, "The server cannot listen on 192.0.2.77"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_started(options: dict[str, Any], message: str, model: Path) -> None:
    with pytest.raises(MLDecoderError, match=message) as caught:
        serve(str(model), **({"port": free_port()} | options))
    assert "\n" not in str(caught.value)


def test_without_ray_the_command_says_how_to_get_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MLDecoderError, match=r"pip install 'mldecoder\[scale\]'"):
        serve(str(model))


def test_a_run_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(MLDecoderError):
        serve(str(tmp_path / "gone"), port=free_port())


@pytest.mark.slow
def test_the_command_serves_until_it_is_stopped(model: Path) -> None:
    port = free_port()
    words = ["serve", str(model), "--port", str(port), "--replicas", "1"]
    process = subprocess.Popen(
        command(*words),
        env=environment(MLDECODER_TOKEN="sesame"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = next((line for line in process.stdout if " is at " in line), "")
    found = re.search(r"http://\S+", told)
    assert found, process.communicate()
    assert httpx.post(f"{found[0]}/predict", content=png(0), timeout=60).status_code == 401
    headers = {"authorization": "Bearer sesame"}
    assert httpx.post(f"{found[0]}/predict", content=png(0), headers=headers, timeout=60).status_code == 200
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "Stopping." in rest
    assert "Traceback" not in errors
