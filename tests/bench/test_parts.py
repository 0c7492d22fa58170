import statistics
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.bench.clock import Runner, take_turns
from mldecoder.bench.contenders import Contender, contenders, find_peer
from mldecoder.bench.count import multiply_adds_of
from mldecoder.bench.estimate import step_bytes, weight_numbers
from mldecoder.bench.failure import attempt
from mldecoder.bench.memory import capped, largest, weight_bytes
from mldecoder.bench.paper import paper_figures
from mldecoder.bench.place import Place, find_place, machine_memory
from mldecoder.bench.rows import Row, against_gap, beside_paper, timed
from mldecoder.bench.settings import HEADS, BenchSettings, Mode
from mldecoder.bench.sizes import parse_bytes, parse_grid, parse_numbers, show_bytes
from mldecoder.errors import ConfigError

CPU = Place(torch.device("cpu"), "fp32", autocast=False)
PLAIN = "mldecoder.bench.plain:PlainMLDecoder"


def contender(name: str, settings: BenchSettings, classes: int, in_features: int) -> Contender:
    return next(c for c in contenders(settings, classes, in_features) if c.name == name)


@given(limit=st.integers(0, 300_000), end=st.sampled_from([64, 1000, 2**17]))
def test_the_search_finds_the_largest_batch_to_a_hundredth(limit: int, end: int) -> None:
    asked: list[int] = []
    found = largest(lambda batch: asked.append(batch) or batch <= limit, end=end)  # type: ignore[func-returns-value]
    best = min(limit, end)
    assert found <= best <= found + found // 100
    assert found == best or best > 255
    assert len(asked) < 30


@pytest.mark.parametrize(("text", "count"), [("16GiB", 2**34), ("16 gib", 2**34), ("1.5GB", 1_500_000_000), ("7", 7)])
def test_memory_is_read_as_people_write_it(text: str, count: int) -> None:
    assert parse_bytes(text) == count


def test_memory_is_shown_with_the_unit_that_fits() -> None:
    assert [show_bytes(n) for n in (0, 1023, 1536, 5 * 2**20, 2**34)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "16.0 GiB",
    ]


def test_sizes_that_are_none_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="An amount of memory is a number with a unit, such as 16GiB"):
        parse_bytes("much")
    with pytest.raises(ConfigError, match="rows x columns of the feature map, such as 7x7, got '49'"):
        parse_grid("49")
    with pytest.raises(ConfigError, match="--classes takes whole numbers with commas, such as 100,1000, got 'ten'"):
        parse_numbers("ten", "--classes")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"heads": ("gpa",)}, "Unknown head 'gpa'. Did you mean 'gap'?"),
        ({"modes": ("training",)}, "Unknown mode 'training'. Did you mean 'train'?"),
        ({"precision": "fp8"}, "Unknown precision 'fp8'. Known: auto, bf16, fp32, fp16."),
        ({"peers": ("torch.nn.Linear",)}, "A peer is named module:Class"),
        ({"classes": (100, 0)}, "classes must be at least 1, got 0."),
        ({"batch": 0}, "batch must be at least 1, got 0."),
        ({"heads": ()}, "There is nothing to measure"),
        ({"budget": 0.0}, "budget must be above 0 seconds"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BenchSettings(**wrong)  # type: ignore[arg-type]
    assert sentence in str(caught.value)


def test_a_gpu_that_is_not_there_and_a_batch_that_needs_one_are_refused() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"no CUDA device here. Use --device cpu"):
            find_place(BenchSettings(device="cuda"))
    with pytest.raises(ConfigError, match="--batch auto fills a GPU's memory, and this is a CPU"):
        find_place(BenchSettings(device="cpu", batch=None))


@given(
    name=st.sampled_from([*HEADS, PLAIN]),
    n=st.integers(1, 60),
    k=st.integers(1, 60),
    c=st.integers(1, 20),
)
def test_the_weights_of_a_head_are_told_without_building_it(name: str, n: int, k: int, c: int) -> None:
    settings = BenchSettings(queries=(k,), width=16, ff_width=24, peers=(PLAIN,))
    head = contender(name, settings, n, c)
    built = head.build(torch.device("cpu"))
    assert weight_numbers(head, settings, c) == sum(p.numel() for p in built.parameters())
    buffers = sum(b.numel() * b.element_size() for b in built.buffers())
    assert weight_bytes(built) == 4 * weight_numbers(head, settings, c) + buffers


def test_the_attention_of_a_hundred_thousand_classes_is_more_than_a_machine_has() -> None:
    settings = BenchSettings(batch=1)
    head = contender("transformer-decoder", settings, 100_000, 2048)
    modes: tuple[Mode, ...] = get_args(Mode)
    for mode in modes:
        assert step_bytes(head, settings, 2048, mode=mode, batch=1, itemsize=4) > 8 * 100_000**2 * 4
    small = contender("ml-decoder", settings, 100_000, 2048)
    assert step_bytes(small, settings, 2048, mode="train", batch=1, itemsize=4) < 2**30


def test_multiply_adds_are_those_of_the_formula() -> None:
    settings = BenchSettings(peers=(PLAIN,))
    t, c, d, f, k, n = 49, 2048, 768, 2048, 100, 1000
    decoder = t * c * d + 2 * k * d * d + 2 * t * d * d + 2 * k * t * d + 2 * k * d * f + n * d
    expected = {"gap": n * c, "ml-decoder": decoder, PLAIN: decoder}
    for name, count in expected.items():
        assert multiply_adds_of(contender(name, settings, n, c), d, (1, c, 7, 7)) == count, name


def test_a_peer_is_built_with_what_its_signature_takes() -> None:
    settings = BenchSettings(
        queries=(3, 5, 50), width=16, ff_width=24, heads=(), peers=(PLAIN, "tests.bench.peers:Sum")
    )
    found = contenders(settings, 10, 6)
    assert [(c.name, c.queries) for c in found] == [
        (PLAIN, 3),
        (PLAIN, 5),
        (PLAIN, 10),  # more queries than classes become one a class
        ("tests.bench.peers:Sum", None),
    ]
    assert found[1].build(torch.device("cpu")).group_weights.shape == (5, 16, 2)  # type: ignore[union-attr]


def test_a_peer_that_is_not_there_is_told_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"The peer 'no.where:Head' cannot be imported .ModuleNotFoundError"):
        find_peer("no.where:Head")
    with pytest.raises(ConfigError, match="must be a class that builds a head, got float"):
        find_peer("math:pi")


def test_heads_take_turns_until_their_budget_is_spent() -> None:
    order: list[str] = []
    fast, slow = Runner(lambda: order.append("fast")), Runner(lambda: order.append("slow"))
    slow.spent = 100.0  # as if by an earlier repeat
    take_turns([fast, slow], CPU, repeats=3, budget=50.0, after=lambda: order.append("|"))
    assert order == ["fast", "slow", "|", "fast", "|", "fast", "|"]  # each gets a time at least once
    assert (len(fast.seconds), len(slow.seconds)) == (3, 1)


def test_a_head_that_fails_is_left_out_of_further_turns() -> None:
    def fail() -> None:
        raise ValueError("no\nmore")

    runner = Runner(fail)
    take_turns([runner], CPU, repeats=3, budget=1.0, after=lambda: None)
    assert runner.failure is not None
    assert (runner.failure.status, runner.seconds) == ("error: no", [])


def test_an_interrupt_is_no_failure_of_a_cell() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(interrupt, CPU)


def test_the_median_and_quartiles_are_those_of_the_statistics_module() -> None:
    seconds = [0.4, 0.1, 0.3, 0.2, 0.9]
    row = timed(Row("gap", 10, None, "train", False, batch=2), seconds, steps=7)
    assert row.us_per_image == pytest.approx(1e6 * statistics.median(seconds) / 2)
    assert row.us_q1 == pytest.approx(100_000)
    assert row.us_q3 == pytest.approx(200_000)
    assert row.images_per_second == pytest.approx(2 / 0.3)
    assert (row.repeats, row.steps) == (5, 7)


def test_ratios_are_taken_against_average_pooling_of_the_same_place_in_the_table() -> None:
    rows = [
        Row("gap", 10, None, "train", False, us_per_image=2.0, peak_bytes=100, largest_batch=50),
        Row("gap", 10, None, "infer", False, us_per_image=1.0),
        Row("ml-decoder", 10, 5, "train", False, us_per_image=3.0, peak_bytes=110, largest_batch=48),
        Row("ml-decoder", 10, 5, "train", True, us_per_image=3.0),
    ]
    found = against_gap(rows)
    assert [row.ratio_to_gap for row in found] == [1.0, 1.0, 1.5, None]
    assert (found[2].peak_ratio_to_gap, found[2].largest_batch_ratio_to_gap) == (1.1, 0.96)


def test_the_paper_stands_beside_figures_in_its_own_sizes_only() -> None:
    row = beside_paper(Row("ml-decoder", 1000, 100, "train", False), BenchSettings())
    assert (row.paper_images_per_second, row.paper_largest_batch, row.paper_multiply_adds) == (568, 456, 6.3e9)
    assert row.paper_ratio_to_gap == pytest.approx(703 / 568)
    assert row.paper_source is not None
    assert "2111.12933" in row.paper_source
    assert paper_figures(BenchSettings(tokens=(14, 14)), "gap", 1000, None) is None
    assert paper_figures(BenchSettings(), "ml-decoder", 1000, 50) is None
    assert paper_figures(BenchSettings(), "gap", 1234, None) is None
    assert paper_figures(BenchSettings(backbone="resnet50", tokens=(1, 1)), "gap", 100, None) is not None


def test_a_cap_on_a_cpu_is_no_matter_of_the_allocator() -> None:
    with capped(CPU, 1):
        torch.zeros(1000)
    assert machine_memory() > 2**28
