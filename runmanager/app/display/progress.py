"""Progress of running runs: a live table in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from runmanager.app.display.eta import run_seconds_left, sweep_seconds_left
from runmanager.app.display.live_layout import LiveLayout
from runmanager.app.display.live_table import Layout, LiveRow, footer
from runmanager.app.display.rich_internals import PausableLive
from runmanager.app.display.run_line import (
    end_reason,
    logged_results,
    planned_epochs,
    run_label,
    run_line,
)
from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord, counted_word
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_epochs, read_record, with_program_report
from runmanager.text import printable

__all__ = ["LiveRegion", "RunDisplay", "terminal_region"]

_ERROR_LINES = 20
_ERROR_WIDTH = 1000  # characters of such a line: an error may quote its data
_REDRAWS_PER_SECOND = 4  # each takes the driver a millisecond
_OTHER_LINES = 4  # of the live region in addition to its rows, and room for the cursor


@dataclass
class _Running:
    """A running run, as last read."""

    paths: RunPaths
    planned: int
    counted: str = "epoch"
    measure_seconds: float = 0.0  # the limit of its measurement side by side, after its epochs
    epochs: Sequence[EpochRecord] = ()
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # the last values that it logged or printed
    seen_at: float = field(default_factory=time.monotonic)  # when it started, or when its last epoch was read

    def as_read(self) -> "_Running":
        """Return the run as its files have it now. Raises `RecordError`."""
        record = with_program_report(self.paths, read_record(self.paths))  # what only the program itself knows
        epochs = read_epochs(self.paths)
        metrics = logged_results(record, epochs)
        if not epochs or epochs[-1].epoch == 0 or epochs == self.epochs:
            return replace(self, metrics=metrics)
        known = replace(self, planned=planned_epochs(record), counted=counted_word(record), metrics=metrics)
        return replace(known, epochs=epochs, seen_at=time.monotonic())

    def seconds(self, now: float) -> float:
        before = (self.epochs[-1].run_seconds if self.epochs else None) or 0.0
        return before + now - self.seen_at

    def seconds_left(self, now: float) -> float | None:
        left = run_seconds_left(self.epochs, self.planned)
        return None if left is None else max(0.0, left + self.measure_seconds - (now - self.seen_at))

    def row(self, now: float) -> LiveRow:
        epoch = self.epochs[-1] if self.epochs else None
        left = self.seconds_left(now)
        return LiveRow(
            run_label(self.paths),
            "running",
            epoch=epoch,
            metrics=self.metrics,
            counted=self.counted,
            planned=self.planned,
            seconds=self.seconds(now),
            seconds_left=left,
        )


class LiveRegion(Protocol):
    """The part of a display that is redrawn in place between `start` and `stop`."""

    def start(self) -> None:
        """Show the region and begin to redraw it."""
        ...

    def stop(self) -> None:
        """Stop redrawing the region."""
        ...

    def paused(self) -> AbstractContextManager[object]:
        """A context in which only the calling thread draws."""
        ...


def terminal_region(console: Console, render: Callable[[], RenderableType]) -> LiveRegion:
    """Return a region at the foot of the terminal. A thread redraws it, and `stop` removes it."""
    return PausableLive(console=console, transient=True, refresh_per_second=_REDRAWS_PER_SECOND, get_renderable=render)


class RunDisplay:
    """Shows runs as they start, advance and end.

    In a terminal (`is_live`) they are rows of one table. Running rows are redrawn at its foot, with estimates of the
    time left for each run and for the sweep; ended rows stay. Elsewhere each start and end is one plain line. With
    `quiet`, only runs that ended badly are shown. `longest_label` is the length of the longest run label; `live_region`
    creates the region for the running rows. Logged metrics have columns where there is room, the requested `metric`
    first.
    """

    def __init__(
        self,
        console: Console,
        *,
        num_runs: int,
        quiet: bool = False,
        longest_label: int = 0,
        metric: str | None = None,
        live_region: Callable[[Console, Callable[[], RenderableType]], LiveRegion] = terminal_region,
    ) -> None:
        self._console = console
        self._quiet = quiet
        self._num_runs = num_runs
        self._ended: dict[str, str] = {}
        self._run_seconds: list[float] = []
        self._running: dict[str, _Running] = {}
        self._max_at_once = 1
        self._seen: dict[str, tuple[object, ...]] = {}
        self._began = time.monotonic()
        self.is_live = console.is_interactive and not quiet  # False for a terminal that cannot move its cursor
        self._metric = metric
        self._columns = LiveLayout(longest_label=longest_label, metric=metric)
        self._layout = self._columns.fitting(self._width())
        self._has_header = False
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
        self._print(Text(printable(line)))

    def _print(self, line: RenderableType) -> None:
        # Wrapped at words in a terminal; unwrapped in a log.
        with self._live.paused():
            self._console.print(line, soft_wrap=not self._console.is_terminal)

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
        now = time.monotonic()
        running = list(self._running.values())  # a copy, as a thread redraws the table
        shown = running[: max(1, self._console.height - _OTHER_LINES)]
        layout = self._fit()
        rows = [layout.row(each.row(now)) for each in shown]
        if not self._has_header:
            rows.insert(0, layout.header())
        if len(shown) < len(running):
            rows.append(Text(f"… and {len(running) - len(shown)} more running", style="dim"))
        return Group(*rows, self._footer(running, now))

    def _footer(self, running: Sequence[_Running], now: float) -> Text:
        ended = list(self._ended.values())
        num_waiting = max(0, self._num_runs - len(ended) - len(running))
        counts = [(word, ended.count(word)) for word in dict.fromkeys(ended)]
        left = sweep_seconds_left(
            [each.seconds_left(now) for each in running],
            num_waiting=num_waiting,
            run_seconds=self._run_seconds,
            at_once=self._max_at_once,
        )
        counts += [("running", len(running)), ("to come", num_waiting)]
        is_over = not running and not num_waiting
        line = footer(counts, seconds=now - self._began, seconds_left=left if running else None, is_over=is_over)
        line.overflow = "crop" if self._console.options.ascii_only else "ellipsis"
        return line

    def started(self, paths: RunPaths, planned: int, *, measure_seconds: float = 0.0) -> None:
        """Show a run as running, if it is not shown yet: a paired run has several processes.

        `planned` is its number of epochs, `measure_seconds` the limit of its measurement after them.
        """
        if paths.name in self._running:
            return
        self._ended.pop(paths.name, None)  # an earlier attempt may have ended badly
        self._running[paths.name] = _Running(paths, planned, measure_seconds=measure_seconds)
        self._max_at_once = max(self._max_at_once, len(self._running))
        if not self._quiet and not self.is_live:
            self.say(f"[{len(self._ended) + len(self._running)}/{self._num_runs}] {run_label(paths)} started")

    def follow(self, running: Sequence[RunPaths]) -> None:
        """Read what the running runs have recorded meanwhile."""
        for paths in running:
            if not self.is_live or not self._has_changed(paths):
                continue
            try:
                self._running[paths.name] = new = self._running[paths.name].as_read()
                self._columns.note(new.row(time.monotonic()))
            except RecordError:
                continue  # reported when the run ends

    def _has_changed(self, paths: RunPaths) -> bool:
        marks = tuple(_mark(path) for path in (paths.epochs, paths.record, paths.reported))
        changed = self._seen.get(paths.name) != marks
        self._seen[paths.name] = marks
        return changed

    def ended(self, paths: RunPaths, record: RunRecord | None = None) -> None:
        """Print the permanent row or line of a run that has ended. `record` is read unless it is given."""
        self.dropped(paths)
        self.counted(paths)
        try:
            record, epochs = record or read_record(paths).observed(), read_epochs(paths)
        except RecordError as error:
            self.say(str(error))
            return
        self._ended[paths.name] = str(record.status)
        if record.status is Status.FINISHED and record.run_seconds is not None:
            self._run_seconds.append(record.run_seconds)
        if self._quiet and record.status.is_success:
            return
        if self.is_live:
            self._print_row(paths, record, epochs)
        else:
            counted = f"{len(self._ended)}/{self._num_runs}"
            self._print(run_line(paths, record, epochs, counted=counted, metric=self._metric))
        if not record.status.is_success and paths.error.exists():
            self._show_error(paths)

    def _print_row(self, paths: RunPaths, record: RunRecord, epochs: Sequence[EpochRecord]) -> None:
        epoch = epochs[-1] if epochs and epochs[-1].epoch > 0 else None
        row = LiveRow(
            run_label(paths),
            record.status,
            reason=str(record.reason or ""),
            epoch=epoch,
            metrics=logged_results(record, epochs),
            counted=counted_word(record),
            planned=planned_epochs(record),
            seconds=record.run_seconds,
        )
        self._columns.note(row)
        layout = self._fit()
        if not self._has_header:
            self._has_header = True
            self._print(layout.header())
        self._print(layout.row(row))
        style = "dim" if record.status.is_success else "red"
        is_in_row = epoch is None and not row.metrics  # such a row shows the reason in place of metrics
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
            self._print(Padding(Text(printable(text), style=style), (0, 0, 0, 2)))

    def retrying(self, paths: RunPaths, end_reason: str) -> None:
        """Print a permanent line for a run that ended badly and is retried, and its error."""
        self.dropped(paths)
        self._print(Text.assemble(("↻", "yellow"), f" {run_label(paths)}  {end_reason}"))
        if paths.error.exists():
            self._show_error(paths)

    def _show_error(self, paths: RunPaths) -> None:
        try:
            text = paths.error.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return  # it is being moved, or was deleted
        lines = text.splitlines()
        if text in self._printed:
            lines = ["the same error as above"]
        self._printed.add(text)
        if len(lines) > _ERROR_LINES:
            lines = ["…", *lines[-_ERROR_LINES:]]
        for line in lines:
            self.say(f"  {line[:_ERROR_WIDTH]}{'…' if len(line) > _ERROR_WIDTH else ''}")
        self.say(f"  the whole error: {paths.error}")

    def dropped(self, paths: RunPaths) -> None:
        """Stop showing a run as running."""
        self._running.pop(paths.name, None)

    def counted(self, paths: RunPaths) -> None:
        """Count a run as ended without printing it."""
        self._ended.setdefault(paths.name, "ended before")

    def count_to(self, num_runs: int) -> None:
        """Set the total number of runs."""
        self._num_runs = num_runs


def _mark(path: Path) -> tuple[int, int] | None:
    """What changes with each write of a file; None where there is none."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_mtime_ns, stat.st_size
