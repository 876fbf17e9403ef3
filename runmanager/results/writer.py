"""Writing the tables of a sweep into its folder, each file whole."""

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from runmanager.records.files.atomic_files import locked_folder, replace_file
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, SweepContents, run_names
from runmanager.results.compare.comparison import CompareOptions
from runmanager.results.figures.figure import FigureFormat, SweepFigure, render
from runmanager.results.findings.crossover import crossover_lines
from runmanager.results.load.loader import RepeatedReading, read_results
from runmanager.results.model.columns import Table
from runmanager.results.report.html import to_html
from runmanager.results.snapshot import SweepSnapshot
from runmanager.results.tables.results_table import epoch_rows
from runmanager.results.tables.writers import iter_json, to_csv, to_json, to_markdown
from runmanager.results.write_throttle import WriteThrottle

__all__ = ["TableUpdater", "write_epochs_table", "write_tables"]

_FEW = 200  # runs, whose tables are written in a tenth of a second


def write_tables(
    paths: SweepPaths,
    *,
    report: bool = True,
    figures: Sequence[FigureFormat] = (),
    options: CompareOptions | None = None,
    now: datetime.datetime | None = None,
    reading: RepeatedReading | None = None,
) -> list[Path]:
    """Rebuild a sweep's tables from its runs, and report.html with them where `report` says so.

    The report's figures are files of their own too, of each of the kinds that `figures` names; these are returned.
    `now` is the present unless it is given.
    Processes that write at one time take turns, so that the last to write has read what the others ended. `reading` is
    for those who write them again and again.
    Raises `UsageError` for comparison `options` that the sweep cannot follow.
    """
    with locked_folder(paths.root):
        sweep, plan = read_results(paths) if reading is None else reading.read()
        snapshot = SweepSnapshot(sweep, plan, options=options)
        for path, text in _texts(snapshot, report=report, now=now).items():
            replace_file(path, text())  # one at a time: the texts of many runs together would take much memory
        return _write_figures(paths, snapshot.figures, figures) if figures else []


def _texts(
    snapshot: SweepSnapshot, *, report: bool, now: datetime.datetime | None
) -> dict[Path, Callable[[], str | Iterable[str]]]:
    """The files to write, with a function that makes each one's content.

    Raises `UsageError` for comparison options that do not fit the sweep: before any file is written.
    """
    paths, results = snapshot.sweep.paths, snapshot.results
    comparison = _with_notes(snapshot.comparison_without_stand_in, snapshot.crossover_limits)
    texts: dict[Path, Callable[[], str | Iterable[str]]] = {
        paths.results("csv"): lambda: to_csv(results),
        paths.results("json"): lambda: iter_json(results),
        paths.results("md"): lambda: to_markdown(results),
        paths.results("html"): lambda: to_html(results, title=f"Results of {paths.name}"),
        paths.epochs_csv: lambda: to_csv(snapshot.epochs),
        paths.comparison("csv"): lambda: to_csv(comparison),
        paths.comparison("json"): lambda: iter_json(comparison),
        paths.comparison("md"): lambda: to_markdown(_with_notes(comparison, crossover_lines(snapshot.crossovers))),
    }
    if report:
        from runmanager.results.report.report import render_report

        texts[paths.report] = lambda: render_report(snapshot, now=now or datetime.datetime.now(datetime.UTC))
    return texts


def _with_notes(table: Table, notes: Sequence[str]) -> Table:
    return dataclasses.replace(table, notes=(*table.notes, *notes))


class TableUpdater:
    """The tables of a sweep for the one process that runs it, run after run: kept up to date as its runs end.

    Of a few hundred runs they are written each time. Of more that would take longer and longer: then they take a small
    share of the time, and who ends the sweep writes them once more.
    """

    def __init__(self, paths: SweepPaths, *, pace: WriteThrottle | None = None) -> None:
        self._paths = paths
        self._reading = RepeatedReading(paths)
        self._pace = pace or WriteThrottle()

    def run_ended(self) -> None:
        """Write them, if that is due."""
        if self._pace.is_due or len(run_names(self._paths)) <= _FEW:
            with self._pace.doing():
                write_tables(self._paths, report=False, reading=self._reading)


def _write_figures(paths: SweepPaths, shown: Sequence[SweepFigure], kinds: Sequence[FigureFormat]) -> list[Path]:
    if shown:
        paths.figures.mkdir(exist_ok=True)
    files = {paths.figure(figure.name, kind): (figure, kind) for figure in shown for kind in kinds}
    for path, (figure, kind) in files.items():
        replace_file(path, render(figure, kind))
    return list(files)


def write_epochs_table(runs: Sequence[StoredRun], stem: Path) -> None:
    """Write `<stem>.csv` and `<stem>.json`: one row an epoch of `runs`, in their order; makes the folder."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    table = epoch_rows(SweepContents(SweepPaths(stem.parent), runs))
    for kind, text in (("csv", to_csv(table)), ("json", to_json(table))):
        replace_file(stem.with_name(f"{stem.name}.{kind}"), text)
