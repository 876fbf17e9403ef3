"""Writing a sweep's tables, report and figures into its folder, each file atomically."""

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from runmanager.errors import UsageError
from runmanager.records.files.atomic_files import locked_folder, replace_file
from runmanager.records.files.file_errors import require_creatable
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, SweepContents, run_names
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.figures.figure import FigureFormat, SweepFigure, render
from runmanager.results.findings.crossover import crossover_lines
from runmanager.results.load.loader import CachedReader, read_results
from runmanager.results.load.several_sweeps import common_root, read_sweeps
from runmanager.results.report.html_table import to_html
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.columns import Table
from runmanager.results.tables.results_table import epoch_rows, inference_rows
from runmanager.results.tables.shown_rows import cross_sweep_rows
from runmanager.results.tables.text_formats import iter_json, to_csv, to_json, to_markdown
from runmanager.results.write_throttle import WriteThrottle

_MAX_NAME = 100  # characters of a page's name
_MAX_UNTHROTTLED_RUNS = 200  # their tables are written in a tenth of a second


def write_tables(
    paths: SweepPaths,
    *,
    report: bool = True,
    figures: Sequence[FigureFormat] = (),
    options: CompareOptions | None = None,
    now: datetime.datetime | None = None,
    reader: CachedReader | None = None,
) -> list[Path]:
    """Rebuild a sweep's tables from its runs and, with `report`, its report.html.

    The report's figures are also written as files in each of the formats `figures`; returns the paths of these files.
    `now` is the time printed in the report, by default the current time. `reader` speeds up repeated calls.

    Processes that write concurrently take turns, so that the last one has read the runs that the others completed.
    Raises `UsageError` for comparison `options` that do not fit the sweep.
    """
    with locked_folder(paths.root):
        sweep, plan = read_results(paths) if reader is None else reader.read()
        snapshot = SweepSnapshot(sweep, plan, options=options)
        for path, make_text in _files(snapshot, report=report, now=now).items():
            replace_file(path, make_text())  # one at a time: all texts of many runs would take much memory
        return _write_figures(paths, snapshot.figures, figures) if figures else []


def _files(
    snapshot: SweepSnapshot, *, report: bool, now: datetime.datetime | None
) -> dict[Path, Callable[[], str | Iterable[str]]]:
    """The files to write, each with a function that makes its content.

    Raises `UsageError` for comparison options that do not fit the sweep, before any file is written.
    """
    paths, results = snapshot.sweep.paths, snapshot.results
    comparison = _with_notes(snapshot.comparison_without_stand_in, snapshot.crossover_limits)
    files: dict[Path, Callable[[], str | Iterable[str]]] = {
        paths.results("csv"): lambda: to_csv(results),
        paths.results("json"): lambda: iter_json(results),
        paths.results("md"): lambda: to_markdown(results),
        paths.results("html"): lambda: to_html(results, title=f"Results of {paths.name}"),
        paths.epochs_csv: lambda: to_csv(snapshot.epochs),
        paths.comparison("csv"): lambda: to_csv(comparison),
        paths.comparison("json"): lambda: iter_json(comparison),
        paths.comparison("md"): lambda: to_markdown(_with_notes(comparison, crossover_lines(snapshot.crossovers))),
    }
    if (inference := inference_rows(snapshot.sweep)).rows or paths.inference_csv.exists():  # of runs that are gone
        files[paths.inference_csv] = lambda: to_csv(inference)
    if report:
        from runmanager.results.report.report import render_report

        files[paths.report] = lambda: render_report(snapshot, now=now or datetime.datetime.now(datetime.UTC))
    return files


def write_cross_table(sweeps: Sequence[SweepPaths]) -> Path:
    """Write a page with the runs of several sweeps in one table to the folder that all of them are in; return it."""
    named = read_sweeps(sweeps)
    page = common_root(sweeps) / f"{'+'.join(each.name.replace('/', '_') for each in named)[:_MAX_NAME]}.html"
    replace_file(page, to_html(cross_sweep_rows(named), title=f"Results of {', '.join(each.name for each in named)}"))
    return page


def _with_notes(table: Table, notes: Sequence[str]) -> Table:
    return dataclasses.replace(table, notes=(*table.notes, *notes))


class TableUpdater:
    """Keeps a sweep's tables up to date in the process that executes its runs one after another.

    The tables of a small sweep are written after every run. Those of a large sweep would take longer and longer, so
    they are written at most for a small share of the time; they must be written once more at the end of the sweep.
    """

    def __init__(self, paths: SweepPaths, *, throttle: WriteThrottle | None = None) -> None:
        self._paths = paths
        self._reader = CachedReader(paths)
        self._throttle = throttle or WriteThrottle()

    def run_ended(self) -> None:
        """Write the tables if the sweep is small or a write is due."""
        if self._throttle.is_due or len(run_names(self._paths)) <= _MAX_UNTHROTTLED_RUNS:
            with self._throttle.writing():
                write_tables(self._paths, report=False, reader=self._reader)


def _write_figures(paths: SweepPaths, figures: Sequence[SweepFigure], formats: Sequence[FigureFormat]) -> list[Path]:
    if figures:
        paths.figures.mkdir(exist_ok=True)
    files = {paths.figure(figure.name, format_): (figure, format_) for figure in figures for format_ in formats}
    for path, (figure, format_) in files.items():
        replace_file(path, render(figure, format_))
    return list(files)


def write_epochs_table(runs: Sequence[StoredRun], stem: Path) -> None:
    """Write `<stem>.csv` and `<stem>.json`, one row per epoch of `runs` in their order; creates missing folders.

    Raises `UsageError` if there can be no such files.
    """
    if not stem.name or "\0" in str(stem):
        raise UsageError(f"`file_name` must be the name of a file without its suffix, got {str(stem)!r}.")
    require_creatable("The folder of `file_name`", stem.parent, way_out="give another one")
    stem.parent.mkdir(parents=True, exist_ok=True)
    table = epoch_rows(SweepContents(SweepPaths(stem.parent), runs))
    for suffix, text in (("csv", to_csv(table)), ("json", to_json(table))):
        replace_file(stem.with_name(f"{stem.name}.{suffix}"), text)
