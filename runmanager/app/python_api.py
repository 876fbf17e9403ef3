"""A sweep from Python, as from a notebook's cell: started or watched there, its table live in the cell's output."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from rich.console import Console

from runmanager.app.compose.override_quoting import format_override
from runmanager.app.display.notebook_output import CellOutput, in_kernel
from runmanager.app.display.output_console import make_console
from runmanager.app.display.progress import terminal_region
from runmanager.app.follow.follower import POLL_SECONDS, follow_runs, write_missing_report
from runmanager.app.follow.slurm_state import slurm_here
from runmanager.app.follow.sweep_state import SweepReader
from runmanager.errors import RecordError, SweepError, UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.sweep.lookup import find_sweep
from runmanager.records.sweep.record import read_sweep_record
from runmanager.results.sweep import Sweep
from runmanager.signals import handle_signals
from runmanager.tracking.environment.rank_check import refuse_several_ranks

__all__ = ["run_sweep", "watch_sweep"]

_BEGAN_STATUSES = (0, 1)  # the runs were made, or some of them ended badly
_USAGE_STATUS = 2
_NAMED_APART = ("name", "output_root")


def watch_sweep(sweep: str | PathLike[str]) -> Sweep:
    """Follow a sweep from its files while it runs, wherever that is, and return it when every cell has ended.

    `sweep` is its folder, or its name under `outputs/`. In a notebook the table stands in the cell's output and moves
    there; in a terminal and in a log it is that of `runmanager watch`. An interrupt (the kernel's, or Ctrl-C) leaves it
    as it stands, and the sweep goes on. Raises `UsageError` where there is no such sweep.
    """
    paths = find_sweep(os.fspath(sweep))
    place = _Place()
    observer = HeartbeatObserver(wait=place.wait)
    reader = SweepReader(paths, observer=observer, queue=slurm_here())
    try:
        state = follow_runs(reader, place.console, observer=observer, live_region=place.live_region)
        write_missing_report(paths, state)
    except KeyboardInterrupt:
        place.say(f"No longer watched; the sweep goes on. Again: watch_sweep({str(paths.root)!r})")
    return Sweep(paths.root)


def run_sweep(*overrides: str, name: str, output_root: str | PathLike[str] = "outputs") -> Sweep:
    """Run every combination of the settings, as `runmanager sweep` does, and return the sweep when it has ended.

    `overrides` are the command's, as in `run_sweep("lr=0.1,0.01", "device=cpu,cuda", name="first")`; the sweep lies in
    `output_root/name`. A second call with this name does only what is missing. The command runs in a process of its
    own, which ends with this one. An interrupt lets the running epochs end, a second one ends them at once; then
    `KeyboardInterrupt` is raised, and the same call goes on with what is left. Runs that fail are in the table: they
    raise nothing. Raises `UsageError`, a line a fault, where the settings cannot be and nothing was run, and in one of
    several ranks; `SweepError` where the sweep's process broke off.
    """
    refuse_several_ranks()
    _refuse_other_words(overrides)
    command = ["-m", *overrides, format_override("name", name), format_override("output_root", os.fspath(output_root))]
    place = _Place()
    place.say(f"$ {shlex.join(['python', '-m', 'runmanager', *command])}")
    driver = _Driver(place)
    with handle_signals((signal.SIGINT,), driver.interrupt):
        said = driver.drive(command, SweepPaths(Path(output_root) / name))
    if driver.num_interrupts:
        place.say("Interrupted; the same call goes on with what is left.")
        raise KeyboardInterrupt
    if driver.status not in _BEGAN_STATUSES:
        fault = UsageError if driver.status == _USAGE_STATUS else SweepError
        raise fault("\n".join(said) or f"The sweep's driver must end by itself, got status {driver.status}.")
    for line in said:
        place.say(line)
    return Sweep(Path(output_root) / name)


def _refuse_other_words(overrides: Sequence[str]) -> None:
    for word in overrides:
        if not isinstance(word, str):
            raise UsageError(f"`run_sweep` must get settings as texts, got {word!r}; write run_sweep(*settings).")
        if word.startswith("-"):
            raise UsageError(
                f"`run_sweep` must get settings, got '{word}'; give flags to `runmanager sweep` in a shell."
            )
        setting = word.partition("=")[0]
        if setting in _NAMED_APART:
            raise UsageError(f"`{setting}` must be given by its own argument, got '{word}'; write {setting}=… apart.")


class _Place:
    """Where a display stands: the output of the cell in a kernel, else this process's own screen."""

    def __init__(self) -> None:
        self._cell = CellOutput() if in_kernel() else None
        self.console: Console = make_console() if self._cell is None else self._cell.console
        self.live_region = terminal_region if self._cell is None else self._cell.live_region

    def say(self, line: str) -> None:
        """Show a line and keep it; it stays one line, to be copied."""
        self.console.print(line, markup=False, soft_wrap=True)
        self.draw()

    def draw(self) -> None:
        """Show what is new."""
        if self._cell is not None:
            self._cell.draw()

    def wait(self, seconds: float) -> None:
        """Let time pass, with everything shown."""
        self.draw()
        time.sleep(seconds)


class _Driver:
    """The command in a process of its own, and in a session of its own: interrupts reach it through us, each once."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._num_heeded = 0
        self.num_interrupts = 0
        self.status: int | None = None

    def interrupt(self) -> None:
        """The user wants it to end: after the running epochs, and when asked again at once."""
        self.num_interrupts += 1

    def drive(self, command: Sequence[str], sweep: SweepPaths) -> list[str]:
        """Start the command and show the runs of its sweep until it has ended; what it had to say of errors."""
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "runmanager.app.subprocess_main",
                    str(os.getpid()),
                    *command,
                    "--quiet",
                    "--yes",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # what it says there, the files say too
                stderr=said,
                start_new_session=True,
            )
            try:
                self._follow(process, sweep)
            except BaseException:
                process.terminate()
                raise
            said.seek(0)
            return [line.removeprefix("error: ") for line in said.read().splitlines()]

    def _follow(self, process: "subprocess.Popen[bytes]", sweep: SweepPaths) -> None:
        def has_left() -> bool:
            self.status = process.poll()
            return self.status is not None

        def wait(seconds: float) -> None:
            self._pass_interrupts_on(process)
            self._place.wait(seconds)

        while not has_left() and not _is_at(sweep, process.pid):
            wait(POLL_SECONDS)
        if self.status is None or (self.status in _BEGAN_STATUSES and sweep.record.exists()):
            observer = HeartbeatObserver(wait=wait)
            reader = SweepReader(sweep, observer=observer, queue=slurm_here())
            place = self._place
            follow_runs(reader, place.console, observer=observer, live_region=place.live_region, has_left=has_left)

    def _pass_interrupts_on(self, process: "subprocess.Popen[bytes]") -> None:
        for number in range(self._num_heeded, self.num_interrupts):
            process.send_signal(signal.SIGINT)
            self._place.say("Stopping at once." if number else "Stopping after this epoch; again stops at once.")
        self._num_heeded = self.num_interrupts


def _is_at(sweep: SweepPaths, pid: int) -> bool:
    """Whether the process has begun to run the sweep."""
    try:
        plan = read_sweep_record(sweep)
    except RecordError:
        return False  # the process reads it too, and says so
    return plan is not None and any(each.pid == pid for each in plan.drivers)
