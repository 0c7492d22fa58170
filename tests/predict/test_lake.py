"""The parts of tagging a lake that need no Ray: the list of what is left, its blocks, and a worker on its own."""

import os
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mldecoder.errors import ConfigError, DataError
from mldecoder.predict import Predictor, Source
from mldecoder.predict.files import settings_of, tag_files
from mldecoder.predict.lake import tag_lake
from mldecoder.predict.lake_batch import LARGEST, largest_worth_it
from mldecoder.predict.lake_ray import Slots, joined, slots
from mldecoder.predict.lake_todo import GRAIN, blocks_of, read_block, rows_a_block, write_todo
from mldecoder.predict.lake_worker import Job, Tagger
from mldecoder.predict.listed import listed
from mldecoder.predict.member import Member
from mldecoder.predict.output import Output
from tests.predict.lake import rows_in
from tests.predict.pictures import scene, tiny, write_scenes
from tests.predict.test_files import broken_in


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor(tiny(labels=("a", "b", "c"), img_size=32), threshold=0.0)


@given(total=st.integers(0, 700), data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_blocks_hold_what_is_left_each_once_and_in_order(tmp_path: Path, total: int, data: st.DataObject) -> None:
    names = [f"{i}.png" for i in range(total)]
    done = set(data.draw(st.lists(st.sampled_from(names), unique=True))) if names else set()
    todo = tmp_path / "todo"
    blocks = write_todo(todo, (Source(name, Path(name)) for name in names), done.__contains__)
    rows = rows_a_block(total)
    slow = [[name for name in names[i : i + rows] if name not in done] for i in range(0, total, rows)]
    found = [read_block(todo, block.offset, block.length, Path("/base")) for block in blocks]
    assert [[source.name for source in sources] for _, sources in found] == [block for block in slow if block]
    assert [block.count for block in blocks] == [len(sources) for _, sources in found]
    assert len({name for name, _ in found}) == len(found)
    assert all(source.content == Path("/base") / source.name for _, sources in found for source in sources)


def test_what_was_done_before_does_not_move_the_bounds_of_blocks(tmp_path: Path) -> None:
    sources = [Source(f"{i}.png", Path(f"{i}.png")) for i in range(3 * GRAIN)]
    first = write_todo(tmp_path / "a", sources, lambda _: False)
    names = [read_block(tmp_path / "a", block.offset, block.length, Path())[0] for block in first]
    middle = {source.name for source in sources[GRAIN : 2 * GRAIN]}
    again = write_todo(tmp_path / "b", sources, middle.__contains__)
    assert [read_block(tmp_path / "b", b.offset, b.length, Path())[0] for b in again] == [names[0], names[2]]


def test_members_errors_and_odd_names_travel_in_the_list(tmp_path: Path) -> None:
    odd = os.fsdecode(b"new\nline-\xff.png")
    sources = [
        Source("a.tar/1.png", Member(Path("a.tar"), 512, 99)),
        Source("locked", DataError("the folder cannot be read")),
        Source(odd, Path(odd)),
    ]
    [block] = write_todo(tmp_path / "todo", sources, lambda _: False)
    _, (member, error, strange) = read_block(tmp_path / "todo", block.offset, block.length, Path("/base"))
    assert member == Source("a.tar/1.png", Member(Path("/base/a.tar"), 512, 99))
    assert isinstance(error.content, DataError)
    assert str(error.content) == "the folder cannot be read"
    assert strange == Source(odd, Path("/base") / odd)
    with pytest.raises(DataError, match="must reach to byte"):
        read_block(tmp_path / "todo", block.offset, block.length + 1, Path())
    with pytest.raises(DataError, match="must lie in a file"):
        write_todo(tmp_path / "todo", [Source("picture 0", b"bytes")], lambda _: False)


def test_nothing_in_the_list_is_no_block() -> None:
    assert list(blocks_of(array("Q", [0]), array("B", [0]), 3)) == []


def test_a_block_tagged_twice_is_one_part_with_the_rows_of_one_machine(predictor: Predictor, tmp_path: Path) -> None:
    write_scenes(tmp_path / "in", 70)
    (tmp_path / "in" / "text.jpg").write_text("no picture")
    tag_files(predictor, [tmp_path / "in"], tmp_path / "one", "parquet")
    (tmp_path / "many").mkdir()
    blocks = write_todo(tmp_path / "todo", listed([tmp_path / "in"]), lambda _: False)
    worker = Tagger(predictor, Job(tmp_path / "todo", tmp_path / "many", Path.cwd(), None, 2))
    assert len(blocks) == 3
    batch = {key: np.array([getattr(b, key) for b in blocks]) for key in ("offset", "length")}
    for _ in range(2):
        said = worker({"number": np.arange(3), **batch})["report"]
    assert [line.count("text.jpg") for line in said].count(1) == 1
    assert len(list((tmp_path / "many").iterdir())) == 3
    for one, other in zip(rows_in(tmp_path / "one"), rows_in(tmp_path / "many"), strict=True):
        assert (one["path"], one["tags"]) == (other["path"], other["tags"])
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-6)


def test_one_machine_goes_on_with_what_the_pool_began(predictor: Predictor, tmp_path: Path) -> None:
    write_scenes(tmp_path / "in", 70)
    with Output(tmp_path / "out", "parquet", settings_of(predictor)):
        pass
    blocks = write_todo(tmp_path / "todo", listed([tmp_path / "in"]), lambda _: False)
    worker = Tagger(predictor, Job(tmp_path / "todo", tmp_path / "out", Path.cwd(), 8, 1))
    worker.tag(0, blocks[1].offset, blocks[1].length)
    summary = tag_files(predictor, [tmp_path / "in"], tmp_path / "out", "parquet")
    assert (summary.before, summary.tagged) == (32, 38)
    assert len({row["path"] for row in rows_in(tmp_path / "out")}) == len(rows_in(tmp_path / "out")) == 70


def test_a_block_of_broken_files_writes_no_part(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "out").mkdir()
    [block] = write_todo(tmp_path / "todo", listed([tmp_path / "text.jpg"]), lambda _: False)
    worker = Tagger(predictor, Job(tmp_path / "todo", tmp_path / "out", Path.cwd(), 8, 1))
    said = worker.tag(7, block.offset, block.length)
    assert said["broken"] == [[str(tmp_path / "text.jpg"), "not a picture in a known format"]]
    assert (said["number"], said["tagged"]) == (7, 0)
    assert not list((tmp_path / "out").iterdir())


def test_a_machine_that_does_not_see_the_output_says_so(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "todo").touch()
    worker = Tagger(predictor, Job(tmp_path / "todo", tmp_path / "gone", Path.cwd(), 8, 1))
    assert worker.tag(0, 0, 0) == {"number": 0, "unseen": str(tmp_path / "gone")}


def test_all_broken_or_all_done_needs_no_ray(predictor: Predictor, tmp_path: Path) -> None:
    write_scenes(tmp_path / "in", 5)
    tag_files(predictor, [tmp_path / "in"], tmp_path / "out", "parquet")
    summary = tag_lake(predictor, [tmp_path / "in"], tmp_path / "out")
    assert (summary.before, summary.tagged, summary.broken) == (5, 0, 0)
    assert broken_in(tmp_path / "out") == []
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out", "out.settings.json"}
    scene(3).save(tmp_path / "in" / "new.png")
    assert tag_files(predictor, [tmp_path / "in"], tmp_path / "out", "parquet", overwrite=True).tagged == 6


@pytest.mark.parametrize(
    ("machines", "room"),
    [
        ([{"CPU": 2}], Slots(2, 1, 0)),
        ([{"CPU": 1}, {"CPU": 1}, {"memory": 1}], Slots(2, 1, 0)),
        ([{"CPU": 64}, {"CPU": 32}], Slots(24, 4, 0)),
        ([{"CPU": 16, "GPU": 2}, {"CPU": 64}], Slots(2, 8, 1)),
        ([{"CPU": 16, "GPU": 1}, {"CPU": 4, "GPU": 1}], Slots(2, 4, 1)),
        ([], Slots(0, 1, 0)),
    ],
)
def test_models_sit_on_accelerators_or_share_the_cores(machines: list[dict[str, float]], room: Slots) -> None:
    nodes: list[dict[str, object]] = [{"Alive": True, "Resources": resources} for resources in machines]
    assert slots([*nodes, {"Alive": False, "Resources": {"CPU": 8}}]) == room


@pytest.mark.parametrize(
    ("speeds", "chosen"),
    [
        ({32: 100.0, 64: 190.0, 128: 300.0, 256: 310.0}, 128),
        ({32: 100.0, 64: None}, 32),
        ({32: None}, 32),
        ({2**i: 2.0**i for i in range(5, 11)}, LARGEST),
    ],
)
def test_a_batch_grows_while_it_pays_and_fits(speeds: dict[int, float | None], chosen: int) -> None:
    assert largest_worth_it(speeds.__getitem__) == chosen


def test_a_clients_address_is_refused() -> None:
    with (
        pytest.raises(ConfigError, match=r"must be HOST:PORT of the head node, got ray://head:10001"),
        joined("ray://head:10001"),
    ):
        pass
