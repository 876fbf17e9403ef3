"""The outcomes of runs and cells: the metrics that tell which settings are best, the preferred one first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from runmanager.records.run.measurement import OUTCOMES
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.status import is_complete
from runmanager.records.storage.reader import StoredRun
from runmanager.results.metrics.metric import Metric
from runmanager.results.metrics.metric_lookup import default_metrics, find_metric, requested_metric
from runmanager.results.stats.descriptive import levels_by_seed
from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import Spread

RANKED_BY_SHARED_SEEDS = "Not all cells have the same seeds: they are ranked by those that they share."


@dataclass(frozen=True)
class Outcome:
    """A metric that may be the outcome, of the runs in `results`; that of a column has the column's values."""

    metric: Metric
    results: Table
    runs: Sequence[StoredRun]

    @property
    def name(self) -> str:
        return self.metric.name

    @cached_property
    def _logged(self) -> dict[str, float]:
        return {run.record.name: values[-1] for run in self.runs if (values := self.metric.values(run))}

    def of_run(self, row: Row) -> float | None:
        """Return the value of a run, given its row; None where it was not measured."""
        value: float | None = row[self.name] if self.name in OUTCOMES else self._logged.get(row["run"])
        return value

    def of_cell(self, rows: Sequence[Row]) -> float | None:
        """Return the mean over the finished runs, given the rows of all seeds of a cell; None where one has no value.

        It is a `Spread` if there are several rows.
        """
        if len(rows) == 1:
            return self.of_run(rows[0])
        values = self._of_finished(rows)
        known = [value for value in values if value is not None]
        return Spread.of(known) if known and len(known) == len(values) else None

    def levels(self, cells: Sequence[Sequence[Row]], seeds: Sequence[str]) -> list[float] | None:
        """Return the levels of finished cells by the `seeds` that they share; None where all have the same ones."""
        runs = [
            [
                (tuple(row.values.get(name) for name in seeds), value)
                for row in rows
                if is_complete(row["status"], row["reason"]) and (value := self.of_run(row)) is not None
            ]
            for rows in cells
        ]
        return levels_by_seed(runs, is_ratio=self.metric.effect != "difference")

    def is_partial(self, rows: Sequence[Row]) -> bool:
        """Whether some of a cell's finished runs have a value and others have none."""
        lacking = [value is None for value in self._of_finished(rows)]
        return any(lacking) and not all(lacking)

    def _of_finished(self, rows: Sequence[Row]) -> list[float | None]:
        return [self.of_run(row) for row in rows if is_complete(row["status"], row["reason"])]

    def of_epoch(self, epoch: EpochRecord) -> float | None:
        """Return the value of an epoch; None where it was not measured."""
        assert self.metric.of_epoch is not None  # every outcome is a metric of epochs
        return self.metric.of_epoch(epoch)


def outcomes(
    results: Table, runs: Sequence[StoredRun], *, requested: str | None = None, better: str | None = None
) -> Iterator[Outcome]:
    """Yield what may be the outcome, the preferred one first: `OUTCOMES`, then logged metrics with a known direction.

    A `requested` metric, by default that of the table, comes before all of them, where the runs recorded it and its
    direction is known, by itself or as `better`. `results` has a row for each run; `runs` are their records.
    """
    requested = requested or results.metric
    if requested is not None and (metric := requested_metric(requested, runs, better=better)) is not None:
        yield Outcome(metric, results, runs)
    for name in default_metrics(runs):
        yield Outcome(find_metric(name, runs), results, runs)
