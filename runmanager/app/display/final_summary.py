"""The summary printed at a sweep's end: tables, answers in sentences, and the files' paths."""

import dataclasses
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun
from runmanager.records.sweep.lookup import OUTPUT_ROOT
from runmanager.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from runmanager.results.compare.comparison_table import ComparisonTable
    from runmanager.results.table_model.columns import Table

__all__ = ["command_on", "show_duel", "show_results"]

_MAX_ROWS = 10  # of each table: more would leave the answers far below the best rows


def show_results(
    sweep: SweepPaths,
    console: Console,
    is_written: bool = True,
    *,
    observer: HeartbeatObserver | None = None,
    metric: str | None = None,
    without_metrics: str = "",
) -> None:
    """Print the results, the comparison if any, with `is_written` the files' paths, and last the answers.

    `observer` may know runs that vanished. The best cell is that by `metric`, if the runs recorded it. Where runs
    finished and none recorded any metric, `without_metrics` is added.
    """
    from runmanager.results.compare.comparison import compare_with_stand_in
    from runmanager.results.findings.answer_sentences import answers
    from runmanager.results.load.loader import read_results
    from runmanager.results.tables.results_table import result_rows

    contents, plan = read_results(sweep, observer=observer)
    results, comparison = result_rows(contents, plan), compare_with_stand_in(contents, plan)
    console.print()
    console.print(_tables(sweep, results, comparison, width=console.width))
    console.print()
    where = [f"Results: {sweep.results('csv')}   Report: {sweep.report}"] if is_written else []
    again = f"Again: {command_on(sweep, 'table')}   TensorBoard: {command_on(sweep, 'tensorboard')}"
    said = answers(results, comparison, runs=contents.runs, metric=metric)
    if without_metrics and _has_only_runs_without_metrics(contents.runs):
        said.append(without_metrics)
    _print_lines(console, [*where, again, "", *said])


def _tables(sweep: SweepPaths, results: "Table", comparison: "ComparisonTable", *, width: int) -> "RenderableType":
    """The best cells, and the pairs with an answer: the sentences say what could not be compared."""
    from runmanager.results.compare.verdict import INCONCLUSIVE, NOT_MEASURED
    from runmanager.results.tables.seeds import collapse_seeds
    from runmanager.results.tables.shorter_runs import without_shorter_runs, without_skipped_cells
    from runmanager.results.tables.sorting import best_first
    from runmanager.results.tables.terminal import render_summary

    table, compare = (f"`{command_on(sweep, name)}" for name in ("table", "compare"))
    all_shown_by = f"{table} --all` shows"
    cells = collapse_seeds(without_shorter_runs(results, all_shown_by), each=f"{table} --each` shows the runs.")
    answered = [
        row
        for row in comparison.rows
        if row["verdict"] not in ((NOT_MEASURED, INCONCLUSIVE) if row.is_stand_in else (NOT_MEASURED,))
    ]
    pairs = without_shorter_runs(dataclasses.replace(comparison, rows=answered), f"{compare} --all` shows")
    shown = best_first(without_skipped_cells(cells, all_shown_by))
    return render_summary(shown, pairs, limit=_MAX_ROWS, all_shown_by=f"{all_shown_by} all", width=width)


def _has_only_runs_without_metrics(runs: Sequence[StoredRun]) -> bool:
    from runmanager.results.metrics.metric_lookup import has_metrics

    return any(run.record.status is Status.FINISHED for run in runs) and not has_metrics(runs)


def show_duel(sweep: SweepPaths, console: Console, is_written: bool) -> None:
    """Print the rates of each side of a duel, its bottleneck, and the files' paths.

    The command prints the answer itself as its last line. The tables of a sweep are left out: a duel's epochs are
    warm-up, and their accuracy does not matter.
    """
    from runmanager.results.compare.comparison import CompareOptions, compare_matches
    from runmanager.results.compare.matched_pairs import match_sides
    from runmanager.results.findings.answer_sentences import duel_rates
    from runmanager.results.findings.bottleneck import bottleneck_notes
    from runmanager.results.load.loader import read_results

    contents, plan = read_results(sweep)
    matches = match_sides(contents, plan, CompareOptions())
    comparison = compare_matches(contents, matches, CompareOptions())
    where = [f"Rounds: {sweep.report}   Results: {sweep.results('csv')}"] if is_written else []
    console.print()
    _print_lines(console, [*duel_rates(comparison), *bottleneck_notes(matches), *where])


def _print_lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        # Wrapped at words in a terminal; unwrapped in a log.
        console.print(Text(printable(line)), soft_wrap=not console.is_terminal)


def command_on(sweep: SweepPaths, name: str) -> str:
    """Return a command on the sweep as it is typed here: `runmanager table first`."""
    root = sweep.root.absolute()
    is_named = root.parent == OUTPUT_ROOT.absolute() and not root.name.startswith("-")
    return shlex.join(["runmanager", name, root.name if is_named else str(sweep.root)])
