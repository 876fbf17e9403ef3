"""A stored sweep in a notebook or a program: what it found, its tables as DataFrames, its figures."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import find_sweep
from runmanager.results.compare.comparison import CompareOptions, compare
from runmanager.results.findings.answers import answers
from runmanager.results.findings.best import Best, find_best
from runmanager.results.model.formatting import human_columns
from runmanager.results.notebook import choose_figure, draw_for_notebook, sweep_as_html, sweep_as_text
from runmanager.results.snapshot import SweepSnapshot
from runmanager.results.tables.dataframe import to_dataframe
from runmanager.results.tables.query import TableQuery

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runmanager.results.figures.figure import SweepFigure


__all__ = ["Sweep"]


class Sweep:
    """The sweep in a folder, or of that name under `outputs/`, as it stood when it was first looked at.

    Everything that it gives is of one moment, so that its tables agree; `refresh` looks again. At the end of a
    notebook's cell it shows itself: the answers, what failed, the table.

    Raises `UsageError` where there is no such sweep.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.paths = find_sweep(os.fspath(folder))

    @cached_property
    def _snapshot(self) -> SweepSnapshot:
        return SweepSnapshot.read(self.paths)

    def refresh(self) -> "Sweep":
        """Read the sweep again on the next access; returns the sweep itself."""
        self.__dict__.pop("_snapshot", None)
        return self

    @property
    def answers(self) -> list[str]:
        """What the sweep found, in sentences: what is faster, what is best, how its runs ended."""
        return answers(self._snapshot.results, self._snapshot.comparison)

    @property
    def runs(self) -> "pd.DataFrame":
        """One row a run, the columns of results.csv; what is missing is NaN."""
        return to_dataframe(self._snapshot.results)

    @property
    def epochs(self) -> "pd.DataFrame":
        """One row an epoch of every run, the columns of epochs.csv; what is missing is NaN."""
        return to_dataframe(self._snapshot.epochs)

    def table(
        self,
        *,
        where: str | None = None,
        sort: str | None = None,
        columns: str | Sequence[str] | None = None,
        pivot: str | None = None,
        each: bool = False,
    ) -> "pd.DataFrame":
        """A part of the results, as `runmanager table` shows it: what matters, one row for all seeds of a cell.

        Means over seeds have their standard deviation beside them, as in `val_accuracy_std`; `each=True` gives a row a
        run. `where` is a condition (`"device==cuda and lr<0.1"`), `sort` a column, best first for accuracies and
        throughput, else the smallest first; `columns` names columns or settings. `pivot` is
        `"ROWS:COLUMNS[:METRIC]"`: medians over runs.

        Raises `UsageError` for what cannot be read, and, with the nearest name, for one that is no column.
        """
        named = columns if columns is None or isinstance(columns, str) else ",".join(columns)
        with _said_of_arguments():
            query = TableQuery.parse(where=where, sort=sort, columns=named, pivot=pivot, each=each)
            table = query.of_sweep(self._snapshot.sweep, self._snapshot.plan, collapses=True)
        return to_dataframe(table, human_columns(table) if pivot is None else None)

    def compare(
        self,
        axis: str | None = None,
        baseline: Any = None,
        *,
        metric: str = "samples_per_second",
        drift: float = CompareOptions.drift,
        margin: float | None = None,
    ) -> "pd.DataFrame":
        """One row a matched pair along `axis` (as `CompareOptions` say), columns of comparison.csv or of the metric.

        `drift` is the share by which the machine may drift while one side runs after the other, `margin` the largest
        effect that counts as none: a share for ratios (None: 3%), for accuracies and losses in their own unit.
        Raises `UsageError` for an axis, a baseline or a metric that the sweep does not have, and for a `drift` or
        `margin` out of range.
        """
        options = CompareOptions(axis=axis, baseline=baseline, metric=metric, drift=drift, margin=margin)
        with _said_of_arguments():
            return to_dataframe(compare(self._snapshot.sweep, self._snapshot.plan, options))

    def best(self, metric: str | None = None, *, where: str | None = None) -> Best:
        """The best cell by the mean of `metric` over its seeds, and whether the next one is truly behind it.

        Without a metric by `val_accuracy`; where no cell has one, by accuracy, val_loss or loss, and it says so.
        `where` is a condition on the runs that count. `load_model(sweep.best().run)` is its best run's model.
        Raises `UsageError` for an unknown metric, and where no finished run has it.
        """
        contents, plan = self._snapshot.sweep, self._snapshot.plan
        with _said_of_arguments():
            rows = TableQuery.parse(where=where).of_sweep(contents, plan).rows
            folders = {PurePath(row["run_dir"]).name for row in rows if row["run_dir"] is not None}
            return find_best(contents, plan, metric=metric, folders=folders)

    @property
    def figures(self) -> "dict[str, SweepFigure]":
        """The figures that the sweep has, by the names that `plot` takes, each with its title and caption."""
        return {figure.name: figure for figure in self._snapshot.figures}

    def plot(self, name: str | None = None) -> "Figure":
        """A figure of the sweep; without a name the first that it has, the one that says most.

        It shows itself at the end of a notebook's cell, and `.savefig(path)` writes it into a file.
        Raises `UsageError`, with the names there are, for another one.
        """
        return draw_for_notebook(choose_figure(self._snapshot.figures, name))

    def __repr__(self) -> str:
        return sweep_as_text(self.paths, self.answers)

    def _repr_html_(self) -> str:
        """Called by a notebook."""
        return sweep_as_html(self._snapshot.sweep, self._snapshot.results, self.answers)


@contextmanager
def _said_of_arguments() -> Iterator[None]:
    """Refusals name the options of the commands, which in Python are arguments: `--where` is `where` here."""
    try:
        yield
    except UsageError as error:
        raise UsageError(re.sub(r"`--(\w+)", r"`\1", str(error))) from None
