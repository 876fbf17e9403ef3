"""Progress of running runs: a live table in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from runmanager.app.display.live_layout import LiveLayout
from runmanager.app.display.live_region import LiveRegion, terminal_region
from runmanager.app.display.live_table import Layout, footer
from runmanager.app.display.run_line import (
    end_reason,
    error_excerpt,
    is_without_metrics,
    missing_metric,
    run_label,
    run_line,
)
from runmanager.app.display.run_times import (
    RunTimes,
    RunToCome,
    sweep_seconds_left,
    without_epochs,
)
from runmanager.app.display.running_run import RunningRun, ended_row
from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import file_stamp
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, read_epochs, read_record
from runmanager.text import printable_line, wrapped

__all__ = ["RunDisplay"]

_OTHER_LINES = 5  # of the live region in addition to its rows, and room for the cursor


class RunDisplay:
    """Shows runs as they start, advance and end.

    In a terminal (`is_live`) they are rows of one table. Running rows are redrawn at its foot, with estimates of the
    time left for each run and for the sweep; ended rows stay. Elsewhere each start and end is one plain line. With
    `quiet`, only runs that ended badly are shown. `labels` are those of all runs; `live_region` creates the region for
    the running rows. Logged metrics have columns where there is room, the requested `metric` first; `without_metrics`
    says how to get one, given a run that has none. `to_come` has what is to be done of each run, by the name of its
    folder, and `times` how long such runs take, as far as is known before. Runs in `skipped` have no device here: they
    are not counted, and not shown if they end as expected.
    """

    def __init__(
        self,
        console: Console,
        *,
        num_runs: int,
        quiet: bool = False,
        labels: Collection[str] = (),
        metric: str | None = None,
        without_metrics: Callable[[RunPaths], str] = lambda _: "",
        to_come: Mapping[str, RunToCome] | None = None,
        times: RunTimes | None = None,
        skipped: Collection[str] = (),
        live_region: Callable[[Console, Callable[[], RenderableType]], LiveRegion] = terminal_region,
    ) -> None:
        self._console = console
        self._quiet = quiet
        self._num_runs, self._without_metrics = num_runs, without_metrics
        self._ended: dict[str, str] = {}
        self._times = times or RunTimes()
        self._to_come = dict(to_come or {})
        self._skipped = frozenset(skipped)
        self._running: dict[str, RunningRun] = {}
        self._max_at_once = 1
        self._is_stopping = False
        self._waits_for = ""
        self._seen: dict[str, tuple[object, ...]] = {}
        self._began = time.monotonic()
        self.is_live = console.is_interactive and not quiet  # False for a terminal that cannot move its cursor
        self._metric = metric
        self._columns = LiveLayout(labels=labels, metric=metric)
        self._layout = self._columns.fitting(self._width())
        self._has_header = False
        self._has_checked_metric = False
        self._printed: set[str] = set()
        self._live = live_region(console, self._render_live_region)

    def __enter__(self) -> Self:
        if self.is_live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """Print a permanent line."""
        text = printable_line(line)
        if self._console.is_terminal:
            text = wrapped(text, self._console.width)
        self._print(Text(text, no_wrap=True, overflow="ignore"))

    def say_commands(self, line: str, *commands: str) -> None:
        """Print a permanent line, and each command below it in a line of its own, never broken, to be copied."""
        self.say(line)
        for command in commands:
            with self._live.paused():
                self._console.print(Text(printable_line(f"  {command}")), soft_wrap=True)

    def _print(self, line: RenderableType) -> None:
        # Wrapped at words in a terminal; unwrapped in a log.
        with self._live.paused():
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
        if self._is_stopping:
            return [each.seconds_to_epoch_end(now) for each in running]
        group = sum(each.takes_turns for each in running)
        return [each.seconds_left(now, self._times, group=group) for each in running]

    def _footer(self, running: Sequence[RunningRun], lefts: Sequence[float | None]) -> Text:
        ended = list(self._ended.values())
        num_waiting = 0 if self._is_stopping else max(0, self._num_runs - len(ended) - len(running))
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

    def started(
        self,
        name: str,
        paths: RunPaths,
        planned: int,
        *,
        measure_seconds: float = 0.0,
        since: float | None = None,
        is_resumed: bool = False,
    ) -> None:
        """Show the run of this name as running, if it is not shown yet: a paired run has several processes.

        `planned` is its number of epochs, `measure_seconds` the limit of its measurement after them, `since` when its
        process began, in seconds since 1970, by default now. A line says of a run that was shown as ended that it runs
        again, `is_resumed` or from its start.
        """
        if paths.name in self._running or paths.name in self._skipped:
            return
        has_ended = self._ended.pop(paths.name, None) is not None
        began = time.time() if since is None else min(since, time.time())
        to_come = self._to_come.get(paths.name)
        self._running[paths.name] = RunningRun(
            name,
            paths,
            planned,
            work=None if to_come is None else to_come.work,
            measure_seconds=measure_seconds,
            since=began,
            seen_at=began,
        )
        self._max_at_once = max(self._max_at_once, len(self._running))
        how = ("resumed" if is_resumed else "started again") if has_ended else "started"
        if not self._quiet and not self.is_live:
            self.say(f"[{len(self._ended) + len(self._running)}/{self._num_runs}] {run_label(name)} {how}")
        elif has_ended and not self._quiet:
            self._print_again(name, how)

    def follow(self, running: Sequence[RunPaths]) -> None:
        """Read what the running runs have recorded meanwhile."""
        for paths in running:
            known = self._running.get(paths.name)
            if not self.is_live or known is None:
                continue
            if self._has_changed(paths):
                try:
                    known = known.as_read()
                except RecordError:
                    continue  # reported when the run ends
                self._columns.note(known.row(time.time()))
            self._running[paths.name] = known.with_share()

    def _has_changed(self, paths: RunPaths) -> bool:
        marks = tuple(file_stamp(path) for path in (paths.epochs, paths.record, paths.reported))
        changed = self._seen.get(paths.name) != marks
        self._seen[paths.name] = marks
        return changed

    def ended(self, paths: RunPaths, record: RunRecord | None = None) -> None:
        """Print the permanent row or line of a run that has ended. `record` is read unless it is given."""
        self.dropped(paths)
        try:
            record, epochs = record or read_record(paths).observed(), read_epochs(paths)
        except RecordError as error:
            self.counted(paths)
            self.say(str(error))
            return
        if paths.name in self._skipped:
            if record.status is Status.SKIPPED:
                return
            self._num_runs += 1  # it found a device, or something else went wrong
        self._ended[paths.name] = str(record.status)
        self._times.note(record, epochs)
        if self._quiet and record.status.is_success:
            return
        if self.is_live:
            self._print_row(record, epochs)
        else:
            counted = f"{list(self._ended).index(paths.name) + 1}/{self._num_runs}"
            self._print(run_line(record, epochs, counted=counted, metric=self._metric))
        if not record.status.is_success and paths.error.exists():
            self._show_error(paths)
        if record.status is Status.FINISHED:
            self._note_missing_metric(StoredRun(paths, record, epochs))

    def _note_missing_metric(self, run: StoredRun) -> None:
        """Say of the first of several runs that finishes if it lacks the requested metric, or any: others may, too."""
        if not self._has_checked_metric:
            line = missing_metric(self._metric, run) if self._metric is not None else ""
            if not line and self._num_runs > 1 and is_without_metrics(run):
                advice = self._without_metrics(run.paths)
                line = f"{run_label(run.name)} has finished. {advice}" if advice else ""
            if line:
                self.say(line)
        self._has_checked_metric = True

    def _print_row(self, record: RunRecord, epochs: Sequence[EpochRecord]) -> None:
        row = ended_row(record, epochs)
        self._columns.note(row)
        layout = self._fit()
        is_first, self._has_header = not self._has_header, True
        self._live.refresh()  # else this run's bar, or the first heading, would stand below the row for a moment
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

    def retrying(self, name: str, paths: RunPaths, end_reason: str) -> None:
        """Print a permanent line for a run that ended badly and is retried, and its error."""
        self.dropped(paths)
        self._print_again(name, end_reason)
        if paths.error.exists():
            self._show_error(paths)

    def _print_again(self, name: str, how: str) -> None:
        self._print(Text.assemble(("↻", "yellow"), f" {run_label(name)}  {printable_line(how)}"))

    def _show_error(self, paths: RunPaths) -> None:
        try:
            text = paths.error.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return  # it is being moved, or was deleted
        for line in ["the same error as above"] if text in self._printed else error_excerpt(text):
            self.say(f"  {line.expandtabs()}")
        self._printed.add(text)
        self.say(f"  the whole error: {paths.error}")

    def waiting(self, line: str) -> None:
        """Show what the runs to come wait for, empty for nothing: below the running rows, elsewhere as a line."""
        self._waits_for = line
        if line and not self.is_live:
            self.say(line)

    def stopping(self) -> None:
        """Count the time left to the end of each epoch under way, and no runs to come."""
        self._is_stopping = True

    def dropped(self, paths: RunPaths) -> None:
        """Stop showing a run as running."""
        self._running.pop(paths.name, None)

    def counted(self, paths: RunPaths, record: RunRecord | None = None) -> None:
        """Count a run as ended without printing it; with its `record` it also tells how long runs take."""
        self._ended.setdefault(paths.name, "ended before")
        if record is not None:
            self._times.note_stored(paths, record)

    def count_to(self, num_runs: int) -> None:
        """Set the total number of runs."""
        self._num_runs = num_runs
