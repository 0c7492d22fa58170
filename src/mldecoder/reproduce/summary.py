"""Records of runs to the rows of a table: means, spreads, differences, the paper's figures, verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from mldecoder.reproduce.interval import Interval, paired
from mldecoder.reproduce.plan import Job
from mldecoder.reproduce.results import Record
from mldecoder.reproduce.table import Row, Table
from mldecoder.reproduce.verdict import Verdict, judge

__all__ = ["Line", "Summary", "summarise"]


@dataclass(frozen=True)
class Line:
    """A row with what was measured of it: metric to value by seed."""

    row: Row
    values: Mapping[str, Mapping[int, float]]
    overrides: tuple[str, ...]
    recipe: str
    seconds: float | None

    def of(self, metric: str) -> list[float]:
        """The values of a metric, seed by seed."""
        return [value for _, value in sorted(self.values.get(metric, {}).items())]

    def mean(self, metric: str) -> float | None:
        """Over seeds; None where it was not measured."""
        values = self.of(metric)
        return mean(values) if values else None

    def spread(self, metric: str) -> float | None:
        """The deviation over seeds; None for fewer than two."""
        values = self.of(metric)
        return stdev(values) if len(values) > 1 else None


@dataclass(frozen=True)
class Summary:
    """A whole table as it stands."""

    table: Table
    lines: tuple[Line, ...]
    verdicts: tuple[Verdict, ...]

    def less_base(self, line: Line, metric: str) -> Interval | None:
        """The interval of a row's paired differences to the table's base; None for the base itself."""
        if line.row.name == self.table.base:
            return None
        return paired(line.values.get(metric, {}), self.line(self.table.base).values.get(metric, {}))

    def paper_less_base(self, line: Line, metric: str) -> float | None:
        """The same difference in the paper, where it gives both figures."""
        own, base = line.row.paper.get(metric), self.table.row(self.table.base).paper.get(metric)
        return None if own is None or base is None or line.row.name == self.table.base else own - base

    def line(self, name: str) -> Line:
        """A line by the name of its row."""
        return next(line for line in self.lines if line.row.name == name)


def summarise(table: Table, jobs: Sequence[Job], records: Mapping[str, Record]) -> Summary:
    """The table as its finished runs make it; rows without runs stand in it with the paper's figures."""
    lines = []
    for row in table.rows:
        own = [job for job in jobs if job.row == row.name]
        done = [records[job.key] for job in own if job.key in records]
        values: dict[str, dict[int, float]] = {}
        for record in done:
            for metric, value in record.metrics.items():
                values.setdefault(metric, {})[record.seed] = value
        seconds = mean(record.seconds for record in done) if done else None
        lines.append(Line(row, values, own[0].overrides if own else (), own[0].recipe if own else "", seconds))
    by_name = {line.row.name: line for line in lines}
    verdicts = tuple(
        judge(
            claim,
            by_name[claim.row].values.get(claim.metric or table.metric, {}),
            by_name[claim.base].values.get(claim.metric or table.metric, {}),
        )
        for claim in table.claims
    )
    return Summary(table, tuple(lines), verdicts)
