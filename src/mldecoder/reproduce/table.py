"""A table of the paper as data: its rows, the paper's figures, what they are said to show, and how to run it.

The paper's figures are the only measurements that are stored; every other one comes from a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from mldecoder.errors import ConfigError, did_you_mean

__all__ = ["BUDGETS", "OURS", "Budget", "Claim", "Kind", "Row", "Setting", "Table"]

Budget = Literal["tiny", "small", "full"]
BUDGETS: tuple[Budget, ...] = get_args(Budget)
OURS = "not in the paper"
Kind = Literal["multi-label", "zero-shot", "single-label"]


@dataclass(frozen=True)
class Row:
    """A row: what makes it, and the figures that the paper gives for it.

    Attributes:
        name: As it stands in the table.
        overrides: Of the recipe, in every budget. ``{N}`` is the number of labels, ``{N/4}`` a quarter of it,
            ``{seed}`` the seed.
        paper: Metric to the paper's figure; what is missing is not given.
        at: Further overrides in one budget.
        recipe: In the full budget, where it is not the table's.
        budgets: Where it is run; nowhere for figures that the paper cites from others.
        note: What has to be said about it.
    """

    name: str
    overrides: tuple[str, ...] = ()
    paper: Mapping[str, float] = field(default_factory=dict)
    at: Mapping[Budget, tuple[str, ...]] = field(default_factory=dict)
    recipe: str | None = None
    budgets: tuple[Budget, ...] = BUDGETS
    note: str = ""

    @property
    def cited(self) -> bool:
        """Whether the paper only cites it."""
        return not self.budgets


@dataclass(frozen=True)
class Claim:
    """What the paper reads off a table, as something that seeds can speak to.

    Attributes:
        text: In a sentence.
        row: The row that it is about.
        base: The row that it is compared with.
        kind: ``above`` or ``equal``.
        metric: The metric; the table's first where it is empty.
        margin: For ``equal``: differences below it do not count. A point is what the paper calls significant.
    """

    text: str
    row: str
    base: str
    kind: Literal["above", "equal"]
    metric: str = ""
    margin: float = 1.0


@dataclass(frozen=True)
class Setting:
    """How the runs of a table are made in one budget.

    Attributes:
        recipe: The recipe's name.
        overrides: Of every row.
        decoder: Further ones of the rows whose head is not average pooling.
        pictures: How many there are to train on, for an estimate of the time; of small data it depends.
    """

    recipe: str
    overrides: tuple[str, ...] = ()
    decoder: tuple[str, ...] = ()
    pictures: int | None = None


@dataclass(frozen=True)
class Table:
    """A table or figure of the paper, or one of ours.

    Attributes:
        name: What it is called here.
        title: What it shows.
        source: Where it stands in the paper.
        data: The data of the full budget, a key of :data:`mldecoder.reproduce.sources.SOURCES`.
        kind: What is run in the smaller budgets.
        metrics: The first is the one that is compared; the others stand beside it.
        rows: In their order.
        base: The row that differences are taken to.
        claims: What the paper reads off it.
        full: How it is run in full.
        note: What has to be said about it.
        measures: What is measured of a trained model besides multiply-adds: ``infer img/s``, ``protocols``.
        method: ``train`` a model a row, or call the ``bench``.
        against: The metric that the first one is drawn against, for figures of the paper; their rows are named
            ``BACKBONE, HEAD``.
    """

    name: str
    title: str
    source: str
    data: str
    kind: Kind
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    base: str
    full: Setting
    claims: tuple[Claim, ...] = ()
    note: str = ""
    measures: tuple[str, ...] = ()
    method: Literal["train", "bench"] = "train"
    against: str = ""
    _by_name: Mapping[str, Row] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named = {row.name: row for row in self.rows}
        object.__setattr__(self, "_by_name", named)
        if len(named) < len(self.rows):
            raise ConfigError(f"The rows of {self.name} must have different names.")
        for name in [self.base, *(name for claim in self.claims for name in (claim.row, claim.base))]:
            self.row(name)

    @property
    def metric(self) -> str:
        """The metric that is compared."""
        return self.metrics[0]

    @property
    def ours(self) -> bool:
        """Whether it is a table of ours, which the paper has not."""
        return self.source == OURS

    def row(self, name: str) -> Row:
        """A row by its name."""
        if name not in self._by_name:
            hint = did_you_mean(name, self._by_name, f"It has {'; '.join(self._by_name)}.")
            raise ConfigError(f"{self.name} has no row {name!r}. {hint}")
        return self._by_name[name]

    def run_rows(self, budget: Budget) -> list[Row]:
        """The rows that are run in a budget."""
        return [row for row in self.rows if budget in row.budgets]
