"""``mldecoder web``: what it says before there is a page."""

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mldecoder.cli.web import web
from mldecoder.errors import CheckpointError, ConfigError
from mldecoder.web.server import DEMO, default_run, is_loopback, sweep
from tests.predict.pictures import tiny

needs_gradio = pytest.mark.skipif(find_spec("gradio") is None, reason='needs gradio: pip install "mldecoder[web]"')


@needs_gradio
def test_without_a_run_and_without_a_demo_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"`mldecoder demo` \(or `make demo`\), or pass a run: mldecoder web RUN"):
        web()


def test_without_a_run_it_takes_the_ml_decoder_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny().save_pretrained(DEMO / "best")
    assert default_run() == DEMO


def test_without_gradio_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(ConfigError, match=r'pip install "mldecoder\[web\]"'):
        web("anything")


@needs_gradio
def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a model"):
        web(str(tmp_path))


def test_a_size_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="Write it as 20MB"):
        web("anything", max_upload="much")


@needs_gradio
def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port}: .*Pass another --port"):
            web(str(tmp_path), port=port)


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("my-box", False)],
)
def test_an_address_that_others_can_reach_is_known(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_old_uploads_are_deleted_and_examples_stay(tmp_path: Path) -> None:
    names = ("examples/scene.png", "hash/old.png", "broken-off", "hash/new.png")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
        if "new" not in name:
            os.utime(tmp_path / name, (0, 0))
    sweep(tmp_path, older_than=3600)
    assert [name for name in names if (tmp_path / name).exists()] == ["examples/scene.png", "hash/new.png"]
