"""Writing the tables of a sweep into its folder, each file whole."""

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from runmanager.records.files.atomic_files import locked_folder, replace_file
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, SweepContents, run_names
from runmanager.results.compare.comparison import CompareOptions, compare_matches
from runmanager.results.compare.matching import match_sides
from runmanager.results.figures.catalog import figures_of
from runmanager.results.figures.figure import Drawn, Kind, rendered
from runmanager.results.findings.bottleneck import bottleneck_notes
from runmanager.results.findings.crossover import crossover_lines, notable_crossovers, skipped_crossover_notes
from runmanager.results.findings.paired_rounds import paired_rounds
from runmanager.results.findings.roofline import roofline_rows
from runmanager.results.load.loader import CachedReader, read_results
from runmanager.results.report.html import to_html
from runmanager.results.tables.results_table import epoch_rows, result_rows
from runmanager.results.tables.writers import json_pieces, to_csv, to_json, to_markdown
from runmanager.results.write_throttle import WriteThrottle

__all__ = ["StandingTables", "write_epochs_table", "write_tables"]

_FEW = 200  # runs, whose tables are written in a tenth of a second


def write_tables(
    paths: SweepPaths,
    *,
    report: bool = True,
    figures: Sequence[Kind] = (),
    options: CompareOptions | None = None,
    now: datetime.datetime | None = None,
    reading: CachedReader | None = None,
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
        results = result_rows(sweep, plan)
        options = options or CompareOptions()
        matches = match_sides(sweep, plan, options)
        comparison = compare_matches(sweep, matches, options)
        unlooked = skipped_crossover_notes(matches, comparison)
        comparison = dataclasses.replace(comparison, notes=(*comparison.notes, *unlooked))
        filed = comparison
        if matches.instead_of is not None:
            filed = compare_matches(sweep, matches.without_stand_in(), options)
            filed = dataclasses.replace(filed, notes=(*filed.notes, *unlooked))
        crossings = notable_crossovers(matches, comparison)
        noted = dataclasses.replace(filed, notes=(*filed.notes, *crossover_lines(crossings)))
        texts: dict[Path, Callable[[], str | Iterable[str]]] = {
            paths.results("csv"): lambda: to_csv(results),
            paths.results("json"): lambda: json_pieces(results),
            paths.results("md"): lambda: to_markdown(results),
            paths.results("html"): lambda: to_html(results, title=f"Results of {paths.name}"),
            paths.epochs_csv: lambda: to_csv(epoch_rows(sweep, plan)),
            paths.comparison("csv"): lambda: to_csv(filed),
            paths.comparison("json"): lambda: json_pieces(filed),
            paths.comparison("md"): lambda: to_markdown(noted),
        }
        if report:
            from runmanager.results.findings.sample_size import detectable_by_more_runs
            from runmanager.results.report.report import report_page

            texts[paths.report] = lambda: report_page(
                sweep,
                plan,
                results=results,
                comparison=comparison,
                causes=bottleneck_notes(matches),
                to_find=detectable_by_more_runs(matches, plan),
                crossovers=crossings,
                rounds=paired_rounds(matches),
                work=roofline_rows(sweep, plan),
                now=now or datetime.datetime.now(datetime.UTC),
            )
        for path, text in texts.items():
            replace_file(path, text())  # one after the other: those of many runs would take much memory at once
        if not figures:
            return []
        shown = figures_of(
            sweep, results=results, comparison=comparison, crossovers=crossings, rounds=paired_rounds(matches)
        )
        return _write_figures(paths, shown, figures)


class StandingTables:
    """The tables of a sweep for the one process that runs it, run after run: kept up to date as its runs end.

    Of a few hundred runs they are written each time. Of more that would take longer and longer: then they take a small
    share of the time, and who ends the sweep writes them once more.
    """

    def __init__(self, paths: SweepPaths, *, pace: WriteThrottle | None = None) -> None:
        self._paths = paths
        self._reading = CachedReader(paths)
        self._pace = pace or WriteThrottle()

    def run_ended(self) -> None:
        """Write them, if that is due."""
        if self._pace.is_due or len(run_names(self._paths)) <= _FEW:
            with self._pace.doing():
                write_tables(self._paths, report=False, reading=self._reading)


def _write_figures(paths: SweepPaths, shown: Sequence[Drawn], kinds: Sequence[Kind]) -> list[Path]:
    if shown:
        paths.figures.mkdir(exist_ok=True)
    files = {paths.figure(figure.name, kind): (figure, kind) for figure in shown for kind in kinds}
    for path, (figure, kind) in files.items():
        replace_file(path, rendered(figure, kind))
    return list(files)


def write_epochs_table(runs: Sequence[StoredRun], stem: Path) -> None:
    """Write `<stem>.csv` and `<stem>.json`: one row an epoch of `runs`, in their order; makes the folder."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    table = epoch_rows(SweepContents(SweepPaths(stem.parent), runs))
    for kind, text in (("csv", to_csv(table)), ("json", to_json(table))):
        replace_file(stem.with_name(f"{stem.name}.{kind}"), text)
