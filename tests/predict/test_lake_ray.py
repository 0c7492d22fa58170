"""Tagging a lake on a Ray of two cores, interrupted in the middle."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mldecoder.errors import ConfigError, DataError
from mldecoder.predict import Predictor, lake
from mldecoder.predict.files import tag_files
from mldecoder.predict.lake import tag_lake
from mldecoder.predict.lake_ray import joined
from tests.predict.lake import draw_lake, rows_in
from tests.predict.pictures import tiny
from tests.predict.test_files import broken_in

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def _ray() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray leaves files open, and warns of its own old names
        ray.init(
            num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False, address="local"
        )
        yield
        ray.shutdown()


def test_an_address_where_no_ray_is_gets_one_line() -> None:
    with pytest.raises(ConfigError, match=r"There is no Ray at auto .* `ray start --head`") as caught, joined("auto"):
        pass
    assert "\n" not in str(caught.value)


class StoppedError(Exception):
    """What Ctrl-C would do."""


@pytest.mark.usefixtures("_ray")
def test_stopped_in_the_middle_and_called_again_the_rows_are_those_of_one_machine(tmp_path: Path) -> None:
    draw_lake(tmp_path / "in", 200)
    (tmp_path / "in" / "000" / "text.jpg").write_text("no picture")
    (tmp_path / "in" / "000" / "empty.png").touch()
    predictor = Predictor(tiny(labels=("a", "b", "c"), img_size=32), threshold=0.3)
    tag_files(predictor, [tmp_path / "in"], tmp_path / "one", "parquet")
    out = tmp_path / "many"

    def stop(done: int, _: int) -> None:
        if done >= 60:
            raise StoppedError

    with pytest.raises(StoppedError):
        tag_lake(predictor, [tmp_path / "in"], out, advance=stop)
    before = {part: part.stat().st_mtime_ns for part in out.glob("part-*.parquet")}
    assert before
    assert not (tmp_path / ".many.todo").exists()
    with joined("auto"):  # the Ray that this process is in is kept
        summary = tag_lake(predictor, [tmp_path / "in"], out)
    assert ray.is_initialized()
    assert summary.before >= 60
    assert summary.before + summary.tagged + summary.broken == 202
    assert {part: part.stat().st_mtime_ns for part in before} == before
    for one, other in zip(rows_in(tmp_path / "one"), rows_in(out), strict=True):
        assert (one["path"], one["tags"]) == (other["path"], other["tags"])
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-6)
    assert {Path(name).name for name in broken_in(out)} == {"text.jpg", "empty.png"}
    assert {path.name for path in tmp_path.iterdir()} == {
        *("in", "in-few", "one", "one.settings.json", "one.broken.csv"),
        *("many", "many.settings.json", "many.broken.csv"),
    }


@pytest.mark.usefixtures("_ray")
def test_what_cannot_be_tagged_is_one_line_and_a_way_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_lake(tmp_path / "in", 3, drawn=3)
    predictor = Predictor(tiny(labels=("a", "b"), img_size=32))
    started: list[int] = []

    @contextmanager
    def pool(blocks: dict[int, object], *_: object) -> Iterator[object]:
        started.append(len(blocks))
        yield None

    def die(_: int) -> dict[str, object]:
        raise ray.exceptions.WorkerCrashedError

    def dying(*_: object) -> Iterator[dict[str, object]]:
        return map(die, [0])

    def blind(*_: object) -> Iterator[dict[str, object]]:
        yield {"number": 0, "unseen": "/mnt/photos"}

    monkeypatch.setattr(lake, "pool", pool)
    monkeypatch.setattr(lake, "_until_stuck", dying)
    with pytest.raises(
        DataError, match=r"could not tag the last 3 pictures \(.*died.*\). .*call again to go on"
    ) as told:
        tag_lake(predictor, [tmp_path / "in"], tmp_path / "out")
    assert "\n" not in str(told.value)
    assert started == [1, 1, 1]
    monkeypatch.setattr(lake, "_until_stuck", blind)
    with pytest.raises(DataError, match=r"A machine of the cluster does not see /mnt/photos"):
        tag_lake(predictor, [tmp_path / "in"], tmp_path / "out")
