"""What is printed of a whole sweep: the plan of a dry run, and at its end tables, answers and paths."""

import dataclasses
import itertools
import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich import table as rich_table
from rich.console import Console, Group, RenderableType
from rich.text import Text

from runmanager.app.display.live_table import duration
from runmanager.app.display.output import line_of
from runmanager.app.display.run_line import has_instead, has_metric, run_label
from runmanager.app.display.run_times import RunTimes, sweep_seconds_left
from runmanager.launching.plan import Action, PlannedRun
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.standard_streams import print_line
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Reason
from runmanager.records.settings.signature import short_signature
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.records.sweep.lookup import command_on, typed_name
from runmanager.text import in_backticks, pluralize, printable_line, shell_command, wrapped
from runmanager.validation import fault

if TYPE_CHECKING:
    from rich.console import RenderableType

    from runmanager.results.compare.comparison_table import ComparisonTable
    from runmanager.results.table_model.columns import Table


_MAX_ROWS = (10, 5, 3)  # of each table: in a low terminal fewer, so that all of the end is on the screen
_MAX_CAUSES, _MAX_CAUSE = 2, 300  # of bad ends, and the characters of one
_MAX_DAMAGED = 3
_LINES_BESIDE = 3  # two empty ones, and the prompt


def show_results(
    sweep: SweepPaths,
    console: Console,
    is_written: bool = True,
    *,
    observer: HeartbeatObserver | None = None,
    metric: str | None = None,
    without_metrics: Callable[[RunPaths], str] = lambda _: "",
) -> None:
    """Print the results, the comparison if any, with `is_written` the files' paths, and last the answers.

    `observer` may know runs that vanished. The best cell is that by `metric`, if the runs recorded it. Where runs
    finished and none recorded any metric, what `without_metrics` says of one of them is added.
    """
    from runmanager.results.compare.comparison import compare_with_stand_in
    from runmanager.results.findings.answer_sentences import answers
    from runmanager.results.findings.sample_size import too_little_to_compare
    from runmanager.results.load.loader import read_results
    from runmanager.results.metrics.metric_lookup import finished_without_metrics
    from runmanager.results.tables.results_table import result_rows

    contents, plan = read_results(sweep, observer=observer)
    results, comparison = result_rows(contents, plan), compare_with_stand_in(contents, plan)
    where = _side_by_side(console, f"Results: {sweep.results('csv')}", f"Report: {sweep.report}") if is_written else []
    again = _side_by_side(
        console, f"Again: {command_on(sweep, 'table')}", f"TensorBoard: {command_on(sweep, 'tensorboard')}"
    )
    *said, count = answers(results, comparison, runs=contents.runs, metric=metric)
    said += [*too_little_to_compare(contents, plan), *_failures(contents.runs, sweep), *_damaged(contents.runs, sweep)]
    said.append(count)
    lacking = finished_without_metrics(contents.runs)
    if lacking and (advice := without_metrics(lacking[-1].paths)):
        said.append(advice)
    elif metric is not None and _is_missing(metric, contents.runs):
        have = has_instead(metric, contents.runs, verb="have")
        said.append(f"No finished run has the metric {metric}, by which cells were to be ranked: they {have}")
    lines = [line_of(line, console) for line in (*where, *again, "", *said)]
    console.print()
    tables = _tables_that_fit(sweep, results, comparison, console, num_lines_below=_height(lines, console))
    console.print(tables, crop=False)
    console.print()
    _print_lines(console, lines)


def _tables_that_fit(
    sweep: SweepPaths, results: "Table", comparison: "ComparisonTable", console: Console, *, num_lines_below: int
) -> "RenderableType":
    """As much of the tables as the terminal has lines for: rows go first, then the comparison.

    Legends and notes are left to the commands that a line below names, so that the answer follows the tables.
    """
    from runmanager.results.tables.terminal import render_summary

    pairs = _pairs_with_answer(sweep, comparison)
    cells, cells_alone = (_best_cells(sweep, results, compared) for compared in (pairs, None))
    rows_by, pairs_by = (f"{in_backticks(command_on(sweep, name, '--all'))} shows all" for name in ("table", "compare"))
    room = console.height - num_lines_below - _LINES_BESIDE if console.is_terminal else None
    no_pairs = dataclasses.replace(pairs, rows=[])  # the answers sum them up
    with_pairs = [(cells, _without_notes(pairs))] if pairs.rows else []
    for (table, compared), limit in itertools.product([*with_pairs, (cells_alone, no_pairs)], _MAX_ROWS):
        shown = render_summary(
            table, compared, limit=limit, rows_shown_by=rows_by, pairs_shown_by=pairs_by, width=console.width
        )
        if room is None or _height([shown], console) <= room:
            break
    return shown


def _height(parts: "Sequence[RenderableType]", console: Console) -> int:
    """The number of lines that these take in the terminal."""
    return sum(len(console.render_lines(part, pad=False)) for part in parts)


def _best_cells(sweep: SweepPaths, results: "Table", pairs: "ComparisonTable | None") -> "Table":
    """The cells, the best first, with a line for what is left out, and where legend and notes are, also of `pairs`."""
    from runmanager.results.tables.shown_rows import collapse_seeds, without_shorter_runs, without_skipped_cells
    from runmanager.results.tables.sorting import best_first

    shown_by = f"{in_backticks(command_on(sweep, 'table', '--all'))} shows"
    whole = without_skipped_cells(without_shorter_runs(results, shown_by), shown_by)
    left_out = [note for note in whole.notes if note not in results.notes]
    cells = collapse_seeds(whole, each=f"{in_backticks(command_on(sweep, 'table', '--each'))} shows the runs.")
    reasons = {row["reason"] for row in pairs.rows if row["reason"]} if pairs else ()
    notes = len(cells.notes) - len(left_out) + (len(reasons) + len(pairs.notes) if pairs else 0)
    table, compare = (in_backticks(command_on(sweep, name)) for name in ("table", "compare"))
    both = f"{table} and {compare} explain" if pairs else f"{table} explains"
    also = f", and have {pluralize(notes, 'note')}" if pairs else f", and has {pluralize(notes, 'note')}"
    cells = dataclasses.replace(cells, notes=(*left_out, f"{both} the columns{also if notes else ''}."), legend="")
    return best_first(cells)


def _pairs_with_answer(sweep: SweepPaths, comparison: "ComparisonTable") -> "ComparisonTable":
    """The pairs with an answer: the sentences say what could not be compared."""
    from runmanager.results.tables.shown_rows import pairs_with_answer, without_shorter_runs

    return without_shorter_runs(
        pairs_with_answer(comparison), f"{in_backticks(command_on(sweep, 'compare', '--all'))} shows"
    )


def _without_notes(pairs: "ComparisonTable") -> "ComparisonTable":
    rows = [dataclasses.replace(row, values=row.values | {"reason": None}) for row in pairs.rows]
    return dataclasses.replace(pairs, rows=rows, notes=(), legend="")


def _failures(runs: Sequence[StoredRun], sweep: SweepPaths) -> list[str]:
    """Why the runs ended badly, where none finished: each of the commonest messages once."""
    bad = [run.record for run in runs if run.record.status.is_ended and not run.record.status.is_success]
    if any(run.is_complete for run in runs):
        return []
    by_cause: dict[str, list[RunRecord]] = {}
    for record in bad:
        if record.message and record.reason is not Reason.INTERRUPTED:
            by_cause.setdefault(record.message, []).append(record)
    shown = sorted(by_cause.items(), key=lambda each: -len(each[1]))[:_MAX_CAUSES]
    lines = []
    for message, failed in shown:
        all_of_them = "Both runs" if len(bad) == 2 else f"All {len(bad)} runs"
        which = f"{len(failed)} of {len(bad)} runs" if len(failed) < len(bad) else all_of_them
        cause = message.rstrip(".") if len(message) <= _MAX_CAUSE else f"{message[:_MAX_CAUSE]}…"
        show = shell_command(["runmanager", "show", f"{typed_name(sweep)}/{short_signature(failed[0].signature)}"])
        log = f"{in_backticks(show)} has the log and the error"
        lines.append(f"{which if len(bad) > 1 else 'The run'} ended badly: {cause} ({log}).")
    if lines and (others := len(bad) - sum(len(failed) for _, failed in shown)):
        lines.append(f"{pluralize(others, 'other run')} ended badly too.")
    return lines


def _damaged(runs: Sequence[StoredRun], sweep: SweepPaths) -> list[str]:
    """Name the finished runs whose epochs could not be read."""
    names = [run_label(run.name) for run in runs if run.is_damaged and run.is_complete]
    if not names:
        return []
    shown = [*names[:_MAX_DAMAGED], *(["…"] if len(names) > _MAX_DAMAGED else [])]
    which = pluralize(len(names), "finished run is", "finished runs are")
    return [f"{which} damaged: {', '.join(shown)} ({in_backticks(command_on(sweep, 'table'))} says how)."]


def _is_missing(metric: str, runs: Sequence[StoredRun]) -> bool:
    """Whether runs finished and none of them has the metric."""
    finished = [run for run in runs if run.is_complete]
    return bool(finished) and not any(has_metric(metric, run) for run in finished)


def show_duel(sweep: SweepPaths, console: Console, is_written: bool) -> None:
    """Print the rates of each side of a duel, its bottleneck, and the files' paths.

    The command prints the answer itself as its last line. The tables of a sweep are left out: a duel's epochs are
    warm-up, and their accuracy does not matter.
    """
    from runmanager.results.compare.comparison import compare_matches
    from runmanager.results.compare.comparison_table import CompareOptions
    from runmanager.results.compare.matched_pairs import match_sides
    from runmanager.results.findings.answer_sentences import duel_rates
    from runmanager.results.findings.bottleneck import bottleneck_notes
    from runmanager.results.load.loader import read_results

    contents, plan = read_results(sweep)
    matches = match_sides(contents, plan, CompareOptions())
    comparison = compare_matches(contents, matches, CompareOptions())
    where = _side_by_side(console, f"Rounds: {sweep.report}", f"Results: {sweep.results('csv')}") if is_written else []
    console.print()
    said = [*duel_rates(comparison), *bottleneck_notes(matches), *where, ""]
    _print_lines(console, [line_of(line, console) for line in said])


def _print_lines(console: Console, lines: Sequence[Text]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


def _side_by_side(console: Console, *parts: str) -> list[str]:
    """The parts in one line where the terminal is wide enough, else each in its own, so none is broken."""
    line = "   ".join(parts)
    return [line] if len(line) <= console.width or not console.is_terminal else list(parts)


def notification_faults(url: str | None, *, option: str, is_detached: bool) -> list[str]:
    """Messages on a `url` that no notification can be sent to. The URL may hold a secret, so none repeats it."""
    if url is None:
        return []
    if is_detached:
        return [fault(option, "be left out where the command does not wait for its cells", "it")]
    try:
        service = _service(url)
    except ImportError:
        way_out = "pip install 'torch-runmanager[notify]'"
        return [fault(option, "be left out without the package apprise, which is not installed", "it", way_out)]
    way_out = "https://appriseit.com/services lists them"
    return [] if service else [fault(option, "be a URL of a service that apprise knows", _scheme(url), way_out)]


def announce_end(url: str, sweep: SweepPaths, runs: Sequence[RunRecord | None], *, interrupted: bool) -> None:
    """Send how the sweep of the `runs` ended to `url`; None stands for one that did not begin.

    A failure is a warning on stderr: the sweep itself has ended.
    """
    title = _title(sweep, runs)
    folder = printable_line(str(sweep.root.absolute()))
    body = f"{folder} on {socket.gethostname()}" + ("; interrupted" if interrupted else "")
    try:
        is_sent = _service(url).notify(title=title, body=body)
    except Exception:  # of the service's own client
        is_sent = False
    if not is_sent:
        print_line(f"warning: the notification could not be sent to {_scheme(url)}.", sys.stderr)


def ring(console: Console, sweep: SweepPaths, runs: Sequence[RunRecord | None]) -> None:
    """Ring the terminal's bell, and show how the sweep ended as its title."""
    if console.is_terminal and not console.is_dumb_terminal and sys.stdout.isatty():
        console.bell()
        console.set_window_title(_title(sweep, runs))


def _title(sweep: SweepPaths, runs: Sequence[RunRecord | None]) -> str:
    """The sweep's name and how many of its cells ended how: `first: 11 finished, 1 failed`."""
    counts = Counter("not run" if run is None else str(run.status) for run in runs)
    return f"{printable_line(sweep.name)}: {', '.join(f'{count:,} {status}' for status, count in counts.items())}"


def _service(url: str) -> Any:
    """Return what sends to `url`; false for one that apprise does not know. Raises `ImportError` without apprise."""
    import apprise  # an extra, and slow to import

    logging.getLogger("apprise").addHandler(logging.NullHandler())  # its lines would show the URL
    service = apprise.Apprise()
    return service if service.add(url) else None


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    return f"{scheme}://…" if separator else "one without a scheme"


_GAPS = 4  # between three columns
_WHOLE = 10_000  # characters, wider than any line


def plan_table(
    plan: Sequence[PlannedRun],
    sweep: SweepPaths | None,
    *,
    workers: int = 1,
    to_find: Sequence[str] = (),
    limit: int | None = None,
    is_duel: bool = False,
    width: int = _WHOLE,
) -> RenderableType:
    """Return the planned action of each cell with its reason, the counts, the folder and an estimate of the time.

    `workers` run at once. `to_find`: sentences on what a comparison of the cells can detect. More rows than `limit` are
    folded into a line. The sides of a duel take as long as they may, so their time is not estimated. Lines below the
    table are wrapped at `width`.
    """
    shown = [(printable_line(run.name), str(run.action), printable_line(run.why)) for run in plan[:limit]]
    table = rich_table.Table(box=None, pad_edge=False)
    name, action = (max(map(len, texts), default=0) for texts in ([name for name, *_ in shown], Action))
    name = min(name, width * 3 // 5)
    table.add_column("run", overflow="fold", min_width=name)
    table.add_column("plan", overflow="fold")
    table.add_column("why", overflow="fold", max_width=width - name - action - _GAPS)  # a reason is broken first
    for fields in shown:
        table.add_row(*map(Text, fields))
    counts = Counter(str(run.action) for run in plan)
    summary = ", ".join(f"{number} {action}" for action, number in counts.items())
    where = f"Where: {sweep.runs}" if sweep else "Where: a fresh folder"
    noun = "side" if is_duel else "cell"
    lines = [f"{pluralize(len(plan), noun)}: {summary}", where, "" if is_duel else _estimate(plan, sweep, workers)]
    lines += [*_not_here(plan), *to_find]
    rest = (
        [f"… and {len(plan) - len(shown):,} more; the same command with `| cat` shows all."]
        if len(shown) < len(plan)
        else []
    )
    return Group(table, *rest, "", *(Text(wrapped(printable_line(line), width)) for line in lines if line))


def _not_here(plan: Sequence[PlannedRun]) -> list[str]:
    """Say which devices the comparison will lack."""
    devices = dict.fromkeys(str(run.cell.device) for run in plan if run.action is Action.SKIP)
    if not devices:
        return []
    return [f"Nothing can be said of {' and '.join(devices)}, which this machine lacks: those cells are skipped."]


def _estimate(plan: Sequence[PlannedRun], sweep: SweepPaths | None, workers: int) -> str:
    """How long the runs take that are to come, by those that have finished."""
    to_run = [run for run in plan if run.is_to_run]
    if not to_run:
        return ""
    times = RunTimes()
    for run in read_sweep(sweep, epochs_of=lambda _: False).runs if sweep else ():
        times.note_stored(run.paths, run.record)
    waiting = [times.expected(times.to_come(run, sweep)) for run in to_run]
    known = [seconds for seconds in waiting if seconds is not None]
    if not known:
        return "No run like these is measured in this sweep yet, so the time cannot be estimated."
    at_once = min(workers, len(known))
    how = "one after the other" if at_once == 1 else f"with {at_once} at once"
    about = f"About {duration(sweep_seconds_left([], waiting=known, at_once=at_once) or 0.0)} {how}"
    by = "judging by the runs of this sweep"
    if len(known) == len(to_run):
        return f"{about}, {by}."
    some = f"{len(known)} of the {len(to_run)} runs"
    return f"{about} for {some}, {by}; no run like the others is measured yet."
