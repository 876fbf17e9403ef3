"""What a driver shows while its runs run: a line a run, followed from the run folders alone."""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from runmanager.errors import RecordError
from runmanager.records.paths import RunPaths
from runmanager.records.run import EpochRecord, RunRecord
from runmanager.records.states import Reason
from runmanager.records.store import read_epochs, read_record

__all__ = ["RunDisplay", "run_line"]

_ERROR_LINES = 20
_SYMBOLS = {"finished": ("✓", "green"), "skipped": ("-", "yellow"), "running": (">", "cyan")}


class RunDisplay:
    """Shows runs as they start, advance and end: bars that move in a terminal, plain lines elsewhere.

    With `quiet` only runs that ended badly are shown.
    """

    def __init__(self, console: Console, *, num_runs: int, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._num_runs = num_runs
        self._ended: set[str] = set()
        self._tasks: dict[str, TaskID] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._began = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[metrics]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """Show a line and keep it."""
        self._print(Text(line))

    def _print(self, line: Text) -> None:
        # A terminal wraps at words; a log keeps a line a line.
        self._progress.console.print(line, soft_wrap=not self._console.is_terminal)

    def started(self, paths: RunPaths, planned: int) -> None:
        """A run's process has started."""
        self._ended.discard(paths.name)  # it may have ended badly before
        self._tasks[paths.name] = self._progress.add_task(_label(paths), total=planned, metrics="")
        if not self._quiet and not self._console.is_terminal:
            self.say(f"[{len(self._ended) + len(self._tasks)}/{self._num_runs}] {_label(paths)} started")

    def follow(self, running: Sequence[RunPaths]) -> None:
        """Read what is new of the running runs."""
        for paths in running:
            if self._quiet or not self._has_changed(paths):
                continue
            try:
                epochs = read_epochs(paths)
            except RecordError:
                continue  # seen when the run has ended
            if epochs and epochs[-1].epoch > 0:
                self._progress.update(self._tasks[paths.name], completed=epochs[-1].epoch, metrics=_metrics(epochs[-1]))

    def _has_changed(self, paths: RunPaths) -> bool:
        try:
            stat = paths.epochs.stat()
        except FileNotFoundError:
            return False
        mark = (stat.st_mtime_ns, stat.st_size)
        changed = self._seen.get(paths.name) != mark
        self._seen[paths.name] = mark
        return changed

    def ended(self, paths: RunPaths, record: RunRecord | None = None) -> None:
        """A run is over: one line that stays. `record` is how the caller sees it; else it is read."""
        self.dropped(paths)
        self.counted(paths)
        try:
            record, epochs = record or read_record(paths).observed(), read_epochs(paths)
        except RecordError as error:
            self.say(str(error))
            return
        if self._quiet and record.status.is_success:
            return
        self._print(run_line(paths, record, epochs, counted=f"{len(self._ended)}/{self._num_runs}"))
        if not record.status.is_success and paths.error.exists():
            self._show_error(paths)

    def retrying(self, paths: RunPaths, why: str) -> None:
        """A run ended badly and is begun again: one line that stays, and the error."""
        if paths.name in self._tasks:
            self._progress.remove_task(self._tasks.pop(paths.name))
        self._print(Text.assemble(("↻", "yellow"), f" {_label(paths)}  {why}"))
        if paths.error.exists():
            self._show_error(paths)

    def _show_error(self, paths: RunPaths) -> None:
        lines = paths.error.read_text(errors="replace").splitlines()
        if len(lines) > _ERROR_LINES:
            lines = ["…", *lines[-_ERROR_LINES:]]
        for line in lines:
            self.say(f"  {line}")
        self.say(f"  the whole error: {paths.error}")

    def dropped(self, paths: RunPaths) -> None:
        """A run is not shown as running any more."""
        if paths.name in self._tasks:
            self._progress.remove_task(self._tasks.pop(paths.name))

    def counted(self, paths: RunPaths) -> None:
        """A run is over, and nothing is to be shown of it."""
        self._ended.add(paths.name)

    def count_to(self, num_runs: int) -> None:
        """There are so many runs now."""
        self._num_runs = num_runs


def run_line(paths: RunPaths, record: RunRecord, epochs: Sequence[EpochRecord], *, counted: str) -> Text:
    """One run as it stands, `counted` saying which of how many it is."""
    symbol, style = _SYMBOLS.get(record.status, ("✗", "red"))
    return Text.assemble((symbol, style), f" {counted}  {_label(paths)}  {_summary(record, epochs)}")


def _label(paths: RunPaths) -> str:
    return paths.name.rpartition("-")[0]


def _metrics(epoch: EpochRecord) -> str:
    values: Mapping[str, Any] = {"loss": epoch.loss, "acc": epoch.accuracy, "val_acc": epoch.val_accuracy}
    parts = [f"{name} {value:.3f}" for name, value in values.items() if value is not None]
    if epoch.samples_per_second is not None:
        parts.append(f"{epoch.samples_per_second:,.0f}/s")
    return " ".join(parts)


def _summary(record: RunRecord, epochs: Sequence[EpochRecord]) -> str:
    parts = [str(record.status) + (f" ({record.reason})" if record.reason else "")]
    if epochs and epochs[-1].epoch > 0:
        parts.append(_metrics(epochs[-1]))
    if record.config.get("device") == "auto" and record.environment.device_name:
        parts.append(f"on {record.environment.device_name}")
    if record.run_seconds is not None and record.status.is_success and epochs:
        parts.append(f"{record.run_seconds:.1f} s")
    if record.message and record.reason is not Reason.DEVICE_UNAVAILABLE:  # which says it all
        parts.append(record.message)
    return "  ".join(parts)
