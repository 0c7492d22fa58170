"""``mldecoder predict --ray`` as the command line reads it; Ray itself is not started."""

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mldecoder.cli import app
from mldecoder.cli.predict import predict
from mldecoder.errors import ConfigError
from mldecoder.predict import lake
from mldecoder.predict.files import Summary
from tests.predict.pictures import scene, tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    tiny().save_pretrained(folder / "best")
    return folder


@pytest.mark.parametrize(
    ("words", "address"),
    [
        (["{model}", "{one}", "--ray", "--parquet", "{out}"], "local"),
        (["{model}", "{one}", "--parquet", "{out}", "--ray"], "local"),
        (["--parquet", "{out}", "--ray", "{model}", "{one}"], "local"),
        (["{model}", "{one}", "--ray", "head:6379", "--parquet", "{out}"], "head:6379"),
        (["{model}", "{one}", "--ray=10.0.0.1:6379", "--parquet", "{out}"], "10.0.0.1:6379"),
        (["{model}", "{one}", "--parquet", "{out}", "--ray", "auto"], "auto"),
    ],
)
def test_an_address_may_be_left_out(
    words: list[str], address: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def tag(predictor: object, paths: list[Path], output: Path, *, address: str, **options: object) -> Summary:
        asked.append((paths, output, address, options["batch_size"]))
        return Summary(0, 1, 0, 1.0, output)

    monkeypatch.setattr(lake, "tag_lake", tag)
    scene(0).save(tmp_path / "one.png")
    places = {"model": model, "one": tmp_path / "one.png", "out": f"{tmp_path}/out/"}
    result = CliRunner().invoke(app, ["predict", *(word.format(**places) for word in words)])
    assert result.exit_code == 0, result.output
    assert asked == [([tmp_path / "one.png"], tmp_path / "out", address, None)]
    assert "1 pictures tagged in 1.0 s" in result.output


def test_ray_writes_parquet_only(model: Path, tmp_path: Path) -> None:
    scene(0).save(tmp_path / "one.png")
    for options in ({}, {"csv": tmp_path / "a.csv"}, {"parquet": tmp_path / "a", "timing": True}):
        with pytest.raises(ConfigError, match="On Ray results go to Parquet: pass a folder with --parquet"):
            predict(str(model), [tmp_path / "one.png"], ray="local", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Parquet cannot be printed"):
        predict(str(model), [tmp_path / "one.png"], ray="local", parquet=Path("-"))


def test_without_ray_the_command_says_how_to_get_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'mldecoder\[scale\]'") as caught:
        predict(str(model), [tmp_path / "gone"], ray="local", parquet=tmp_path / "out")
    assert "\n" not in str(caught.value)
