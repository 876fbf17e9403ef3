"""Progress of running runs: a live table in a terminal, plain lines elsewhere."""

import contextlib
import datetime
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from runmanager.app.display.live_table import Layout, LiveLayout, footer
from runmanager.app.display.output import ConsoleOutput, line_of
from runmanager.app.display.run_line import (
    end_reason,
    error_excerpt,
    is_without_metrics,
    missing_metric,
    planned_epochs,
    run_label,
    run_line,
)
from runmanager.app.display.run_times import RunTimes, RunToCome, sweep_seconds_left, without_epochs
from runmanager.app.display.running_run import RunningRun, ended_row
from runmanager.app.follow.sweep_feed import Began, Change, Ended, Said, Waits
from runmanager.app.follow.sweep_state import CellState
from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import file_stamp
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, read_epochs, read_record
from runmanager.text import printable_line

_OTHER_LINES = 5  # of the live region in addition to its rows, and room for the cursor


@dataclass(frozen=True)
class ShownMetric:
    """The metric that was asked for, which comes first, and how a run that recorded none would have one."""

    name: str | None = None
    advice: Callable[[RunPaths], str] = lambda _: ""


class RunDisplay:
    """Shows what a feed tells, and how far the running runs are.

    In a terminal (`is_live`) they are rows of one table. Running rows are redrawn at its foot, with estimates of the
    time left for each run and for the sweep; ended rows stay. Elsewhere each start and end is one plain line. With
    `quiet`, only runs that ended badly are shown. `labels` are those of all runs. Logged metrics have columns where
    there is room, the requested `metric` first. `to_come` has what is to be done of each run, by the name of its
    folder, and `times` how long such runs take, as far as is known before. Runs in `skipped` have no device here: they
    are not counted, and not shown if they end as expected.
    """

    def __init__(
        self,
        output: ConsoleOutput,
        *,
        quiet: bool = False,
        labels: Collection[str] = (),
        metric: ShownMetric = ShownMetric(),
        to_come: Mapping[str, RunToCome] | None = None,
        times: RunTimes | None = None,
        skipped: Collection[str] = (),
    ) -> None:
        self._output = output
        self._console = console = output.console
        self._quiet = quiet
        self.num_runs = len(labels)
        self._ended: dict[str, str] = {}
        self._times = times or RunTimes()
        self._to_come = dict(to_come or {})
        self._skipped = frozenset(skipped)
        self._running: dict[str, RunningRun] = {}
        self._max_at_once = 1
        self.is_stopping = False  # then no runs are to come, and the time left is that of each epoch under way
        self._waits_for = ""
        self._seen: dict[str, tuple[object, ...]] = {}
        self._began = time.monotonic()
        self.is_live = console.is_interactive and not quiet  # False for a terminal that cannot move its cursor
        self._metric = metric
        self._columns = LiveLayout(labels=labels, metric=metric.name)
        self._layout = self._columns.fitting(self._width())
        self._has_header = False
        self._has_checked_metric = False
        self._printed: set[str] = set()

    @contextlib.contextmanager
    def redrawn(self) -> Iterator[None]:
        """A context in which the running rows are redrawn."""
        if self.is_live:
            self._output.start(self._render_live_region)
        try:
            yield
        finally:
            self._output.stop()

    def show(self, changes: Sequence[Change]) -> None:
        """Show what has happened, in this order, and then how far the running runs are."""
        for change in changes:
            match change:
                case Began():
                    self._show_beginning(change.cell)
                case Ended():
                    self._show_end(change.cell, is_earlier=change.is_earlier)
                case Said():
                    self._show_sentence(change)
                case Waits():
                    self._waits_for = change.line
                    if change.line and change.is_new and not self.is_live:
                        self.say(change.line)
        if self.is_live:
            self._follow()

    def say(self, line: str) -> None:
        """Print a permanent line."""
        with self._output.paused():
            self._console.print(line_of(line, self._console), soft_wrap=True)

    def say_commands(self, line: str, *commands: str) -> None:
        """Print a permanent line, and each command below it in a line of its own, never broken, to be copied."""
        self.say(line)
        for command in commands:
            with self._output.paused():
                self._console.print(Text(printable_line(f"  {command}")), soft_wrap=True)

    def _print(self, line: RenderableType) -> None:
        # Wrapped at words in a terminal; unwrapped in a log.
        with self._output.paused():
            self._console.print(line, soft_wrap=not self._console.is_terminal, crop=False)

    def _fit(self) -> Layout:
        """The layout for the terminal's current width and what was logged; a new one has its headings printed again."""
        if (layout := self._columns.fitting(self._width())) != self._layout:
            self._layout = layout
            self._has_header = False
        return self._layout

    def _width(self) -> int:
        """The width of a row. In ASCII the mark of a shortened label takes two more characters than are counted."""
        return self._console.width - (2 if self._console.options.ascii_only else 0)

    def _render_live_region(self) -> RenderableType:
        """The running rows that fit into the terminal, and the footer."""
        now = time.time()
        running = list(self._running.values())  # a copy, as a thread redraws the table
        shown = running[: max(1, self._console.height - _OTHER_LINES)]
        layout = self._fit()
        lefts = self._seconds_left(running, now)
        rows = [layout.row(run.row(now, seconds_left=left)) for run, left in zip(shown, lefts, strict=False)]
        if not self._has_header:
            rows = [*layout.legend(), layout.header(), *rows]
        if len(shown) < len(running):
            rows.append(Text(f"… and {len(running) - len(shown)} more running", style="dim"))
        rows.append(self._footer(running, lefts))
        return Group(*rows, *([Text(self._waits_for, style="dim")] if self._waits_for else []))

    def _seconds_left(self, running: Sequence[RunningRun], now: float) -> list[float | None]:
        if self.is_stopping:
            return [each.seconds_to_epoch_end(now) for each in running]
        group = sum(each.takes_turns for each in running)
        return [each.seconds_left(now, self._times, group=group) for each in running]

    def _footer(self, running: Sequence[RunningRun], lefts: Sequence[float | None]) -> Text:
        ended = list(self._ended.values())
        num_waiting = 0 if self.is_stopping else max(0, self.num_runs - len(ended) - len(running))
        counts = [(word, ended.count(word)) for word in dict.fromkeys(ended)]
        waiting = self._waiting(num_waiting, running)
        left = sweep_seconds_left(lefts, waiting=waiting, at_once=self._max_at_once)
        counts += [("running", len(running)), ("to come", num_waiting)]
        is_over = not running and not num_waiting
        line = footer(
            counts,
            seconds=time.monotonic() - self._began,
            seconds_left=left if running else None,
            is_least=None in lefts or None in waiting,
            is_over=is_over,
        )
        line.overflow = "crop" if self._console.options.ascii_only else "ellipsis"
        return line

    def _waiting(self, number: int, running: Sequence[RunningRun]) -> list[float | None]:
        """The expected seconds of the runs that wait, in order."""
        paces = {without_epochs(each.work): pace for each in running if each.work is not None and (pace := each.pace())}
        named = list(self._to_come.items())  # a copy, as a thread redraws the table
        waiting = [run for name, run in named if name not in self._running and name not in self._ended]
        seconds = [self._times.expected(run, running=paces) for run in waiting]
        return [*seconds, *[None] * number][:number]

    def _show_beginning(self, cell: CellState) -> None:
        record, paths = cell.record, cell.paths
        if record is None or paths.name in self._skipped:
            return
        has_ended = self._ended.pop(paths.name, None) is not None
        at = record.resumed_at or record.started_at
        began = min(time.time(), datetime.datetime.fromisoformat(at).timestamp() if at else math.inf)
        to_come = self._to_come.get(paths.name)
        self._running[paths.name] = RunningRun(
            record.name,
            paths,
            planned_epochs(record),
            work=None if to_come is None else to_come.work,
            measure_seconds=cell.measure_seconds,
            since=began,
            seen_at=began,
        )
        self._max_at_once = max(self._max_at_once, len(self._running))
        how = ("resumed" if record.resumed_at else "started again") if has_ended else "started"
        if not self._quiet and not self.is_live:
            self.say(f"[{len(self._ended) + len(self._running)}/{self.num_runs}] {run_label(record.name)} {how}")
        elif has_ended and not self._quiet:
            self._print_again(f"{run_label(record.name)}  {how}")

    def _follow(self) -> None:
        """Read what the running runs have recorded meanwhile."""
        for name, known in self._running.items():
            paths = known.paths
            marks = tuple(file_stamp(path) for path in (paths.epochs, paths.record, paths.reported))
            if self._seen.get(name) != marks:
                self._seen[name] = marks
                try:
                    known = known.as_read()
                except RecordError:
                    continue  # reported when the run ends
                self._columns.note(known.row(time.time()))
            self._running[name] = known.with_share()

    def _show_end(self, cell: CellState, *, is_earlier: bool) -> None:
        """Print the permanent row or line of a run that has ended; of an earlier one only if it ended badly."""
        paths, name = cell.paths, cell.paths.name
        self._running.pop(name, None)
        if is_earlier and cell.record is not None and cell.record.status.is_success:
            self._ended[name] = "ended before"
            self._times.note_stored(paths, cell.record)
            return
        try:
            record, epochs = cell.record or read_record(paths).observed(), read_epochs(paths)
        except RecordError as error:
            self._ended[name] = "ended before"
            self.say(str(error))
            return
        if name in self._skipped:
            if record.status is Status.SKIPPED:
                return
            self.num_runs += 1  # it found a device, or something else went wrong
        self._ended[name] = str(record.status)
        self._times.note(record, epochs)
        if self._quiet and record.status.is_success:
            return
        if self.is_live:
            self._print_row(record, epochs)
        else:
            counted = f"{list(self._ended).index(name) + 1}/{self.num_runs}"
            self._print(run_line(record, epochs, counted=counted, metric=self._metric.name))
        if not record.status.is_success:
            self._show_error(paths)
        if record.status is Status.FINISHED:
            self._note_missing_metric(StoredRun(paths, record, epochs))

    def _note_missing_metric(self, run: StoredRun) -> None:
        """Say of the first of several runs that finishes if it lacks the requested metric, or any: others may, too."""
        if not self._has_checked_metric:
            line = missing_metric(self._metric.name, run) if self._metric.name is not None else ""
            if not line and self.num_runs > 1 and is_without_metrics(run):
                advice = self._metric.advice(run.paths)
                line = f"{run_label(run.name)} has finished. {advice}" if advice else ""
            if line:
                self.say(line)
        self._has_checked_metric = True

    def _print_row(self, record: RunRecord, epochs: Sequence[EpochRecord]) -> None:
        row = ended_row(record, epochs)
        self._columns.note(row)
        layout = self._fit()
        is_first, self._has_header = not self._has_header, True
        self._output.refresh()  # else this run's bar, or the first heading, would stand below the row for a moment
        if is_first:
            for line in (*layout.legend(), layout.header()):
                self._print(line)
        self._print(layout.row(row))
        style = "dim" if record.status.is_success else "red"
        is_in_row = row.epoch is None and not row.metrics  # such a row shows the reason in place of metrics
        reason = "" if is_in_row else str(record.reason or "")
        self._explain(
            reason if record.message in self._printed else end_reason(record, with_reason=not is_in_row), style=style
        )
        self._printed.add(record.message)
        if record.config.get("device") == "auto" and record.environment.device_name:
            device = f"device=auto is {record.environment.device_name} here"
            self._explain("" if device in self._printed else device, style=style)
            self._printed.add(device)

    def _explain(self, text: str, *, style: str) -> None:
        """Print an explanation below a row."""
        if text:
            self._print(Padding(Text(printable_line(text), style=style), (0, 0, 0, 2)))

    def _show_sentence(self, said: Said) -> None:
        if said.retried is None:
            self.say(said.line)
            return
        self._running.pop(said.retried.name, None)
        self._print_again(printable_line(said.line))
        self._show_error(said.retried)

    def _print_again(self, line: str) -> None:
        self._print(Text.assemble(("↻", "yellow"), f" {line}"))

    def _show_error(self, paths: RunPaths) -> None:
        """Print the end of the run's error, if it has left one."""
        try:
            text = paths.error.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        for line in ["the same error as above"] if text in self._printed else error_excerpt(text):
            self.say(f"  {line.expandtabs()}")
        self._printed.add(text)
        self.say(f"  the whole error: {paths.error}")
