"""One cell of the table from beginning to end, apart from the timing, where heads take turns."""

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from mldecoder.bench.clock import warm_up
from mldecoder.bench.contenders import Contender
from mldecoder.bench.count import multiply_adds, multiply_adds_of
from mldecoder.bench.estimate import step_bytes
from mldecoder.bench.failure import Failure, attempt
from mldecoder.bench.graph import captured
from mldecoder.bench.memory import SEARCH_END, capped, largest, peak_bytes, weight_bytes
from mldecoder.bench.place import Place, kernel_trials
from mldecoder.bench.rows import OOM, Row
from mldecoder.bench.settings import BenchSettings, Mode
from mldecoder.bench.sizes import show_bytes
from mldecoder.bench.work import Network, Step, make_step
from mldecoder.errors import BackboneError

if TYPE_CHECKING:
    from mldecoder.backbones import Backbone

__all__ = ["Cell", "Ready", "Workshop"]


@dataclass(frozen=True)
class Cell:
    """A head, what it is to do, and whether compiled."""

    contender: Contender
    mode: Mode
    compiled: bool

    def __str__(self) -> str:
        return f"{self.contender}, {self.mode}{', compiled' if self.compiled else ''}"


@dataclass(frozen=True)
class Ready:
    """A cell that ran: its step, how many of them make a repeat, and what is known about it already."""

    row: Row
    step: Step
    steps: int


class Workshop:
    """Builds, checks and sets up cells.

    Args:
        settings: What to measure.
        place: Where.
    """

    def __init__(self, settings: BenchSettings, place: Place) -> None:
        self.settings = settings
        self.place = place
        self.backbone = _backbone(settings) if settings.backbone else None
        self.in_features = settings.features if self.backbone is None else self.backbone.num_features
        self.shape = (settings.features, *settings.tokens) if self.backbone is None else (3, *2 * (settings.size,))
        self._body_multiply_adds, self._features = self._through_backbone()
        self._counts: dict[str, int | None] = {}
        self._largest: dict[str, tuple[int, str]] = {}

    def begin(self, cell: Cell) -> Row:
        """The row of a cell before anything was measured; multiply-adds are counted."""
        contender = cell.contender
        key = str(contender)
        if key not in self._counts:
            head = multiply_adds_of(contender, self.settings.width, self._features)
            self._counts[key] = None if head is None else head + self._body_multiply_adds
        return Row(
            contender.name,
            contender.classes,
            contender.queries,
            cell.mode,
            cell.compiled,
            multiply_adds=self._counts[key],
        )

    def find_batch(self, cell: Cell, row: Row) -> tuple[Row, Failure | None]:
        """Fill in the batch: the given one, or a part of the largest that fits, which is searched for if asked."""
        if not (self.settings.wants_largest_batch and self.place.cuda):
            return replace(row, batch=self.settings.batch), None
        key = str(cell.contender)
        if key not in self._largest:
            found, failure = attempt(lambda: self._search(cell.contender), self.place)
            if found is None:
                return row, failure
            self._largest[key] = found
        most, limit = self._largest[key]
        row = replace(row, largest_batch=most, largest_batch_limit=limit)
        if most == 0:
            return row, Failure(limit, "not even one image fits")
        return replace(row, batch=self.settings.batch or max(1, int(0.8 * most))), None

    def refusal(self, cell: Cell, batch: int, *, held: int = 0) -> Failure | None:
        """Why a cell is not tried on a CPU: it plainly needs more memory than there is beside what is held."""
        if self.place.cuda:
            return None
        room = min(self.place.total_memory, self.settings.memory_cap or self.place.total_memory)
        need = self.needed(cell, batch)
        if need + held <= room:
            return None
        return Failure(OOM, f"needs at least {show_bytes(need)} by estimate, there are {show_bytes(room)}; not tried")

    def needed(self, cell: Cell, batch: int) -> int:
        """Bytes of a step, estimated from below."""
        size = torch.empty((), dtype=self.place.dtype).element_size()
        return step_bytes(cell.contender, self.settings, self.in_features, mode=cell.mode, batch=batch, itemsize=size)

    def set_up(self, cell: Cell, row: Row) -> Ready:
        """Build a cell's model, measure its memory where that can be done, and warm it up."""
        place, batch = self.place, row.batch or 1
        place.release()
        held = torch.cuda.memory_reserved(place.device) if place.cuda else 0
        model = self._build(cell.contender)
        weights = weight_bytes(model)
        row = replace(row, weights_bytes=weights)
        run = cast("nn.Module", torch.compile(model, dynamic=False)) if cell.compiled else model
        place.release()

        def make() -> Step:
            return make_step(run, self.settings, place, mode=cell.mode, batch=batch, shape=self.shape)

        if place.cuda:
            with capped(place, self.settings.memory_cap, held=held):
                step, peak = peak_bytes(make, place, weights=weights)
            row = replace(row, peak_bytes=peak, beyond_weights_bytes=peak - weights)
        else:
            step = make()
        if self.settings.graph:
            step = captured(step, place)
        seconds, budget = self.settings.repeat_seconds, self.settings.budget
        return Ready(row, step, warm_up(step, place, repeat_seconds=seconds, budget=budget))

    def _build(self, contender: Contender) -> nn.Module:
        head = contender.build(self.place.device)
        if self.backbone is None:
            return head.to(self.place.dtype)
        model = Network(deepcopy(self.backbone), head).to(self.place.device, self.place.dtype)
        return model.to(memory_format=torch.channels_last) if self.settings.channels_last else model

    def _search(self, contender: Contender) -> tuple[int, str]:
        """The largest batch of a head, uncompiled and alone on the device, and what a larger one ends in."""
        place = self.place
        mode: Mode = "train" if "train" in self.settings.modes else "infer"
        place.release()
        held = torch.cuda.memory_reserved(place.device)
        model = self._build(contender)
        place.release()
        endings: list[str] = []

        def run(batch: int) -> None:
            step = make_step(model, self.settings, place, mode=mode, batch=batch, shape=self.shape)
            step()
            step()

        def fits(batch: int) -> bool:
            model.zero_grad(set_to_none=True)
            place.release()
            _, failure = attempt(lambda: run(batch), place)
            if failure is not None:
                endings.append(failure.status)
            return failure is None

        with capped(place, self.settings.memory_cap, held=held), kernel_trials(False):
            most = largest(fits)
        errors = [ending for ending in endings if ending != OOM]
        return most, "end of the search" if most == SEARCH_END else errors[0] if errors else OOM

    def _through_backbone(self) -> tuple[int, tuple[int, ...]]:
        """Multiply-adds of the backbone, and the shape of one picture's features behind it."""
        if self.backbone is None:
            return 0, (1, *self.shape)
        with torch.no_grad():
            return multiply_adds(self.backbone.eval(), torch.zeros(1, *self.shape))


def _backbone(settings: BenchSettings) -> "Backbone":
    try:
        from mldecoder.backbones import create_backbone
    except ImportError as error:
        raise BackboneError(
            f"--backbone needs timm and torchvision, but {error.name} is not installed. "
            f"Install it, or leave --backbone out to measure the heads alone."
        ) from error
    return create_backbone(str(settings.backbone), img_size=settings.size)
