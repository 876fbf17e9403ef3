"""A stored sweep in Python: its answers, its tables as DataFrames, and its figures."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import find_sweep
from runmanager.results.compare.comparison import CompareOptions, compare
from runmanager.results.findings.answer_sentences import answers
from runmanager.results.findings.best import BestCell, find_best
from runmanager.results.metrics.metric import LAST, At
from runmanager.results.notebook import choose_figure, draw_for_notebook, sweep_as_html, sweep_as_text
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.formatting import human_columns
from runmanager.results.tables.dataframe import to_dataframe
from runmanager.results.tables.names import in_list
from runmanager.results.tables.query import TableQuery

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runmanager.results.figures.figure import SweepFigure


__all__ = ["Sweep"]


class Sweep:
    """The sweep in a folder, or the one with this name under `outputs/`.

    Its runs are read once, on first access, so that all tables and figures agree; `refresh` reads them again. As the
    last value of a notebook cell it displays its answers, the failed runs and the results table.

    Raises `UsageError` if the sweep does not exist.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.paths = find_sweep(os.fspath(folder))

    @cached_property
    def _snapshot(self) -> SweepSnapshot:
        return SweepSnapshot.read(self.paths)

    def refresh(self) -> "Sweep":
        """Discard what was read, so that the next access reads the sweep again; returns the sweep itself."""
        self.__dict__.pop("_snapshot", None)
        return self

    @property
    def answers(self) -> list[str]:
        """The sweep's findings in sentences: what is faster, what is best, how its runs ended."""
        return answers(self._snapshot.results, self._snapshot.comparison, runs=self._snapshot.sweep.runs)

    @property
    def runs(self) -> "pd.DataFrame":
        """One row per run, the columns of results.csv; missing values are NaN."""
        return to_dataframe(self._snapshot.results)

    @property
    def epochs(self) -> "pd.DataFrame":
        """One row per epoch of every run, the columns of epochs.csv; missing values are NaN."""
        return to_dataframe(self._snapshot.epochs)

    def table(
        self,
        *,
        where: str | None = None,
        sort: str | None = None,
        columns: str | Sequence[str] | None = None,
        pivot: str | None = None,
        each: bool = False,
        better: str | None = None,
    ) -> "pd.DataFrame":
        """A part of the results, as `runmanager table` shows it: the main columns, one row for all seeds of a cell.

        Runs that a longer one continues are left out, unless an argument names the epochs or the run. Means over seeds
        are followed by their standard deviations, as in `val_accuracy_std`, and by `val_accuracy_count` where some runs
        lack the value; `each=True` keeps one row per run. `where`
        is a condition (`"device==cuda and lr<0.1"`), `sort` a column: largest first where that is better, as for
        accuracies and throughput, else smallest first; `better` (`"max"`, `"min"`) is the direction of a metric, needed
        where it was not declared and its name does not tell. `columns` names columns or settings. `pivot` is
        `"ROWS:COLUMNS[:METRIC]"`, with medians over runs. Every logged metric is a column.

        Raises `UsageError` for an argument that cannot be parsed, for a metric whose direction is not known and, with
        the nearest name, for an unknown column.
        """
        names = columns if columns is None or isinstance(columns, str) else ",".join(map(in_list, columns))
        with _errors_name_arguments():
            query = TableQuery.parse(where=where, sort=sort, columns=names, pivot=pivot, each=each, better=better)
            table = query.of_sweep(self._snapshot.sweep, self._snapshot.plan, collapses=True)
        return to_dataframe(table, human_columns(table) if pivot is None else None)

    def compare(
        self,
        axis: str | None = None,
        baseline: Any = None,
        *,
        metric: str = "samples_per_second",
        better: str | None = None,
        at: At = LAST,
        drift: float = CompareOptions.drift,
        margin: float | None = None,
        where: str | None = None,
    ) -> "pd.DataFrame":
        """One row per matched pair along `axis`, with the columns of comparison.csv or those of the metric.

        For the defaults of `axis` and `baseline` see `CompareOptions`. `metric` may be any that the epochs recorded, or
        `time_to_accuracy=0.95`; of a metric of epochs, `at` chooses the `"last"` or the `"best"` epoch of each run, and
        `better` (`"max"`, `"min"`) its direction, which is needed where it was not declared and its name does not tell.
        `drift` is the share by which the machine's
        speed may change while one side runs after the other. `margin` is the largest effect that counts as no
        difference: a share for ratios (None: 3%), in the metric's unit for metrics of epochs. `where` is a condition
        on the pairs (`"verdict==faster"`); intervals and verdicts stay those of all pairs.

        Raises `UsageError` for an axis, a baseline or a metric that the sweep does not have, and for a `drift` or
        `margin` out of range.
        """
        options = CompareOptions(axis, baseline, metric, better=better, at=at, drift=drift, margin=margin)
        with _errors_name_arguments():
            query = TableQuery.parse(where=where)
            return to_dataframe(query.of_comparison(compare(self._snapshot.sweep, self._snapshot.plan, options)))

    def best(
        self, metric: str | None = None, *, better: str | None = None, at: At = LAST, where: str | None = None
    ) -> BestCell:
        """The best cell by the mean of `metric` over its seeds, and whether the next one is truly worse.

        The default metric is `val_accuracy`, or the first one that a cell has of validation, of a test, or of training;
        the result says which. `better` and `at` are those of `compare`. `where` is a condition on the runs to
        consider. `load_model(sweep.best().run)` loads the model of the cell's best run.

        Raises `UsageError` for an unknown metric and for one that no finished run has.
        """
        contents, plan = self._snapshot.sweep, self._snapshot.plan
        with _errors_name_arguments():
            rows = TableQuery.parse(where=where).of_sweep(contents, plan).rows
            folders = {self.paths.root / row["run_dir"] for row in rows if row["run_dir"] is not None}
            return find_best(contents, plan, metric=metric, better=better, at=at, folders=folders)

    @property
    def figures(self) -> "dict[str, SweepFigure]":
        """The sweep's figures by the names that `plot` takes, each with its title and caption."""
        return {figure.name: figure for figure in self._snapshot.figures}

    def plot(self, name: str | None = None) -> "Figure":
        """Draw a figure of the sweep, by default the most informative one.

        A notebook displays it as the last value of a cell; `.savefig(path)` writes it to a file.
        Raises `UsageError`, with the valid names, for an unknown name.
        """
        return draw_for_notebook(choose_figure(self._snapshot.figures, name))

    def __repr__(self) -> str:
        return sweep_as_text(self.paths, self.answers)

    def _repr_html_(self) -> str:
        """The HTML that a notebook displays."""
        return sweep_as_html(self._snapshot.sweep, self._snapshot.results, self.answers)


@contextmanager
def _errors_name_arguments() -> Iterator[None]:
    """Replace the names of command options in error messages by those of arguments: `--where` becomes `where`."""
    try:
        yield
    except UsageError as error:
        raise UsageError(re.sub(r"`--(\w+)", r"`\1", str(error))) from None
