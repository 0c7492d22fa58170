"""What is done with a GPU's answers, on a GPU that is made up: its allocator counts the images of a batch."""

import time
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor, nn

from mldecoder.bench.cells import Cell, Workshop
from mldecoder.bench.contenders import Contender
from mldecoder.bench.memory import capped
from mldecoder.bench.place import Place
from mldecoder.bench.settings import BenchSettings
from mldecoder.bench.work import Step

MEMORY, WEIGHTS, IMAGE = 1000.0, 100, 7


class Gpu(Place):
    """The CPU, under the name of a GPU."""

    @property
    def cuda(self) -> bool:
        return True

    @property
    def total_memory(self) -> int:
        return int(MEMORY)

    def synchronise(self) -> None:
        pass

    def release(self) -> None:
        pass


@dataclass
class Allocator:
    """Says no when weights and images need more than it may give."""

    limit: float = MEMORY
    peak: int = 0
    fractions: list[float] = field(default_factory=list)

    def take(self, images: int) -> None:
        need = WEIGHTS + IMAGE * images
        if need > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self.peak = max(self.peak, need)

    def set_fraction(self, fraction: float, _device: object) -> None:
        self.fractions.append(fraction)
        self.limit = MEMORY * fraction


class Head(nn.Module):
    def __init__(self, allocator: Allocator, breaks_at: int) -> None:
        super().__init__()
        self.allocator = allocator
        self.breaks_at = breaks_at
        self.classify = nn.Linear(4, 5, bias=True)  # 25 numbers, 100 bytes

    def forward(self, x: Tensor) -> Tensor:
        if len(x) >= self.breaks_at:
            raise RuntimeError("a kernel cannot count that far")
        self.allocator.take(len(x))
        logits: Tensor = self.classify(x.mean(dim=(2, 3)))
        return logits


class Event:
    def __init__(self, enable_timing: bool) -> None:
        self.enable_timing = enable_timing

    def record(self) -> None:
        self.moment = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: "Event") -> float:
        return 1000 * (other.moment - self.moment)


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    made = Allocator()
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: WEIGHTS)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _device: setattr(made, "peak", 0))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _device: made.peak)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", made.set_fraction)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return made


SETTINGS = BenchSettings(features=4, tokens=(1, 1), batch=None, repeat_seconds=1e-3)


def cell(allocator: Allocator, breaks_at: int = 10**6) -> Cell:
    return Cell(Contender("gap", 5, None, True, lambda: Head(allocator, breaks_at)), "train", False)


def workshop(settings: BenchSettings) -> Workshop:
    return Workshop(settings, Gpu(torch.device("cpu"), "fp32", autocast=False))


def test_the_batch_is_four_fifths_of_the_largest_that_fits(allocator: Allocator) -> None:
    shop, it = workshop(SETTINGS), cell(allocator)
    row, failure = shop.find_batch(it, shop.begin(it))
    assert failure is None
    assert (row.largest_batch, row.largest_batch_limit, row.batch) == (128, "OOM", 102)  # 100 + 7 * 128 = 996


def test_a_cap_lowers_the_largest_batch_and_is_taken_off_again(allocator: Allocator) -> None:
    shop, it = workshop(replace(SETTINGS, memory_cap=500, batch=40)), cell(allocator)
    row, failure = shop.find_batch(it, shop.begin(it))
    assert failure is None
    assert (row.largest_batch, row.batch) == (57, 40)  # 100 + 7 * 57 = 499; the batch that was given stays
    assert allocator.fractions == [0.5, 1.0]


def test_not_even_one_image_is_out_of_memory(allocator: Allocator) -> None:
    shop, it = workshop(replace(SETTINGS, memory_cap=101)), cell(allocator)
    row, failure = shop.find_batch(it, shop.begin(it))
    assert failure is not None
    assert (row.largest_batch, failure.status, failure.detail) == (0, "OOM", "not even one image fits")


def test_a_search_that_ends_in_another_error_says_so(allocator: Allocator) -> None:
    shop, it = workshop(SETTINGS), cell(allocator, breaks_at=50)
    row, failure = shop.find_batch(it, shop.begin(it))
    assert failure is None
    assert (row.largest_batch, row.largest_batch_limit) == (49, "error: a kernel cannot count that far")


def test_memory_is_the_peak_of_a_step_with_and_without_weights(allocator: Allocator) -> None:
    shop, it = workshop(replace(SETTINGS, batch=10)), cell(allocator)
    row, _ = shop.find_batch(it, shop.begin(it))
    ready = shop.set_up(it, row)
    assert (ready.row.weights_bytes, ready.row.peak_bytes, ready.row.beyond_weights_bytes) == (100, 170, 70)
    assert ready.row.largest_batch is None  # nobody asked for it
    step: Step = ready.step
    step()


def test_what_does_not_fit_under_the_cap_is_out_of_memory(allocator: Allocator) -> None:
    shop, it = workshop(replace(SETTINGS, batch=100, memory_cap=500)), cell(allocator)
    row, _ = shop.find_batch(it, shop.begin(it))
    with pytest.raises(torch.OutOfMemoryError):
        shop.set_up(it, row)
    assert allocator.limit == MEMORY


def test_what_other_heads_hold_is_added_to_the_cap(allocator: Allocator) -> None:
    with capped(Gpu(torch.device("cpu"), "fp32", autocast=False), 500, held=200):
        assert allocator.limit == 700
