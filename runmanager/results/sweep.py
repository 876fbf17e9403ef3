"""A stored sweep in Python: its answers, its tables as DataFrames, its figures, and how a notebook displays it."""

import dataclasses
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.lookup import find_sweep
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.findings.answer_sentences import answers
from runmanager.results.findings.best import BestCell, find_best
from runmanager.results.metrics.metric import LAST, At
from runmanager.results.report.html_table import build_html_table, render_template
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.columns import Table
from runmanager.results.table_model.formatting import Spread, human_columns
from runmanager.results.tables.query import TableQuery, in_list
from runmanager.results.tables.shown_rows import collapse_seeds, without_shorter_runs
from runmanager.text import printable_line
from runmanager.validation import did_you_mean

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runmanager.results.figures.figure import SweepFigure


_MAX_ROWS = 20
_MAX_FAILURES = 10
_COUNT_SUFFIX = "_count"
_STD_SUFFIX = "_std"  # of a column with the standard deviations of another column's means
_OF_SEEDS = "seeds."  # before the name of such a column that a metric has itself

_TEXT_COLUMNS = frozenset(
    {"run", "status", "reason", "device", "device_name", "started_at", "run_dir", "axis", "metric", "verdict"}
)
_BOOL_COLUMNS = frozenset({"contended", "warmup"})
_SETTING_VALUE_COLUMNS = frozenset({"baseline", "candidate"})


def to_dataframe(table: Table, columns: Sequence[str] | None = None) -> "pd.DataFrame":
    """The table, or some `columns` of it, as a DataFrame; missing values are NaN.

    If rows stand for several runs, means are followed by their standard deviations in a column `<name>_std`, and where
    some of the runs lack a value by the number of those that have it, in `<name>_count`. Such a column goes under
    `seeds.` where the table has a column of this name.
    """
    import pandas as pd

    def added(name: str) -> str:
        while name in table.columns or name in series:
            name = f"{_OF_SEEDS}{name}"
        return name

    series: dict[str, pd.Series[Any]] = {}
    for name in table.columns if columns is None else columns:
        values = [row[name] for row in table.rows]
        series[name] = _series(name, values, is_setting=name in (*table.settings, *table.labels))
        spreads = [value.deviation if isinstance(value, Spread) else None for value in values]
        if any(isinstance(value, Spread) and value.count > 1 for value in values):
            series[added(f"{name}{_STD_SUFFIX}")] = _series(name, spreads, is_setting=False)
        if any(isinstance(value, Spread) and value.is_partial for value in values):
            counts = [value.count if isinstance(value, Spread) else value is not None for value in values]
            series[added(f"{name}{_COUNT_SUFFIX}")] = pd.Series(counts, dtype="int64")
    return pd.DataFrame(series, columns=list(series))


def _series(name: str, values: Sequence[Any], *, is_setting: bool) -> "pd.Series[Any]":
    """Numbers as int64, or float64 if one is missing; truth values as bool if all are known."""
    import pandas as pd

    if is_setting or name in _TEXT_COLUMNS | _BOOL_COLUMNS | _SETTING_VALUE_COLUMNS:
        # pandas infers these; None in an object column becomes NaN like every other missing value.
        series = pd.Series(values, dtype=None if values else object)
        return series.where(series.notna(), float("nan")) if series.dtype == object else series
    if any(value is None or isinstance(value, float) for value in values) or not values:
        return pd.Series([float("nan") if value is None else float(value) for value in values], dtype="float64")
    return pd.Series(values)


def sweep_as_text(paths: SweepPaths, answers: Sequence[str]) -> str:
    """The sweep's folder, then one indented line per answer."""
    return "\n".join([f"Sweep({str(paths.root)!r})", *(f"  {printable_line(line)}" for line in answers)])


def sweep_as_html(contents: SweepContents, results: Table, answers: Sequence[str]) -> str:
    """An HTML fragment with the answers, the first failures and the first rows of the table.

    It inherits the page's colours and fonts, and its styles apply to itself only.
    """
    cells = collapse_seeds(without_shorter_runs(results, "`.runs` has"), each="`.runs` has a row for each run.")
    failures = [run.record for run in contents.runs if run.record.status.is_ended and not run.record.status.is_success]
    first = dataclasses.replace(cells, rows=cells.rows[:_MAX_ROWS])
    return render_template(
        "sweep.html",
        answers=answers,
        failures=failures[:_MAX_FAILURES],
        num_failures=len(failures),
        table=build_html_table(first, title="Results", file="results.csv"),
        num_rows=len(cells.rows),
    )


def choose_figure(figures: "Sequence[SweepFigure]", name: str | None) -> "SweepFigure":
    """The figure with this name, or the first one. Raises `UsageError`, with the nearest name, if it does not exist."""
    if not figures:
        raise UsageError("A plot must have data to show, got a sweep without a measured epoch; wait for one.")
    if name is None:
        return figures[0]
    known = {figure.name: figure for figure in figures}
    if name in known:
        return known[name]
    hint = did_you_mean(name, known, max_names=1) or "choose one of these."
    raise UsageError(f"A plot must be one that the sweep has ({', '.join(known)}), got '{name}'; {hint}")


def draw_for_notebook(figure: "SweepFigure") -> "Figure":
    """Draw the figure; inside IPython, also register the formatter that displays matplotlib figures.

    IPython registers it only when pyplot is imported, which this package avoids.
    """
    from matplotlib.figure import Figure

    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        formatters = shell.display_formatter.formatters.values()
        if not any(Figure in formatter.type_printers for formatter in formatters):
            from IPython.core.pylabtools import select_figure_formats

            select_figure_formats(shell, {"png"})
    return figure.draw()


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
