"""Sweeps from Python, for example from a notebook: started or watched, with a live table in the cell's output."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from rich.console import Console

from runmanager.app.display.live_region import terminal_region
from runmanager.app.display.notebook_output import CellOutput, in_kernel
from runmanager.app.display.output_console import make_console
from runmanager.app.follow.slurm_state import local_slurm_queue
from runmanager.app.follow.sweep_follower import POLL_SECONDS, follow_runs, write_missing_report
from runmanager.app.follow.sweep_state import SweepReader
from runmanager.app.request.command import option_words
from runmanager.app.request.command_reader import split_fixed
from runmanager.app.request.sweep_request import Form, SweepRequest
from runmanager.app.request.sweep_request import options as known_options
from runmanager.errors import RecordError, SweepError, UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.settings.secrets import masked_words
from runmanager.records.sweep.lookup import find_sweep
from runmanager.records.sweep.sweep_record import read_sweep_record
from runmanager.results.sweep import Sweep
from runmanager.signals import handle_signals
from runmanager.text import printable, shell_command
from runmanager.tracking.environment.rank_check import refuse_several_ranks
from runmanager.validation import suggestion

__all__ = ["run_sweep", "watch_sweep"]

_STATUSES_WITH_RUNS = (0, 1)  # runs were made; with 1, some ended badly
_USAGE_STATUS = 2
_OWN_ARGUMENTS = ("name", "output_root")


def watch_sweep(sweep: str | PathLike[str], *, metric: str | None = None) -> Sweep:
    """Follow a sweep from its files, wherever it runs, and return it when every cell has ended.

    `sweep` is its folder, or its name under `outputs/`. In a notebook the table is updated in the cell's output; in a
    terminal or a log it is that of `runmanager watch`. Logged metrics have columns where there is room, `metric` first.
    An interrupt (the kernel's, or Ctrl-C) ends the following, and the sweep keeps running. Raises `UsageError` if no
    such sweep exists.
    """
    paths = find_sweep(os.fspath(sweep))
    output = _Output()
    observer = HeartbeatObserver(wait=output.wait)
    reader = SweepReader(paths, observer=observer, queue=local_slurm_queue())
    try:
        state = follow_runs(reader, output.console, observer=observer, live_region=output.live_region, metric=metric)
        write_missing_report(paths, state)
    except KeyboardInterrupt:
        output.print_line(
            f"No longer watched; the sweep is still running. To continue: watch_sweep({str(paths.root)!r})"
        )
    return Sweep(paths.root)


def run_sweep(*words: str, name: str, output_root: str | PathLike[str] = "outputs", **options: Any) -> Sweep:
    """Run every combination of the settings, as `runmanager sweep` does, and return the sweep when it has ended.

    `words` are those of the command: a program, settings, and arguments after `--`, as in `run_sweep("train.py",
    "lr=0.1,0.01", name="first", workers=2)`; without a program it is the built-in job. `options` are those of the
    command too, with `_` for `-`, and lists for those that are repeatable. The sweep is stored in `output_root/name`; a
    second call with this name runs only what is missing. The command runs in a child process, which ends with this one.
    An interrupt lets the running epochs end, a second one ends them at once; then `KeyboardInterrupt` is raised, and
    the same call resumes the sweep. Failed runs are rows of the table and raise nothing. Raises `UsageError`, one line
    a fault, if the words are invalid and nothing was run, and in one of several ranks; `SweepError` if the child
    process failed.
    """
    refuse_several_ranks(of_sweep=True)
    _refuse_invalid_words(words)
    given = {"name": name, "output_root": os.fspath(output_root), **options}
    if unknown := [each for each in options if each not in known_options()]:
        way_out = suggestion(unknown[0], known_options())
        raise UsageError(f"`{unknown[0]}` must be an option of `runmanager sweep`, got an unknown one; {way_out}")
    if options.get("dry_run"):
        raise UsageError("`dry_run` must be left out, got it; `runmanager sweep --dry-run` shows the plan in a shell.")
    request = SweepRequest(**{each: _as_listed(each, value) for each, value in given.items()})
    command = ["sweep", *option_words(request, given.keys() - {"quiet", "yes"}), *words]
    output = _Output(quiet=request.quiet)
    output.print_line(f"$ {shell_command(masked_words(['runmanager', *command]))}")
    driver = _Driver(output)
    with handle_signals((signal.SIGINT,), driver.interrupt):
        lines = driver.drive(command, SweepPaths(Path(output_root) / name))
    if driver.num_interrupts:
        output.print_line("Interrupted; the same call resumes the sweep.")
        raise KeyboardInterrupt
    if driver.status not in _STATUSES_WITH_RUNS or not SweepPaths(Path(output_root) / name).record.exists():
        fault = UsageError if driver.status == _USAGE_STATUS else SweepError
        raise fault("\n".join(lines) or f"The sweep's driver must end by itself, got status {driver.status}.")
    for line in lines:
        output.print_line(line)
    return Sweep(Path(output_root) / name)


def _refuse_invalid_words(words: Sequence[str]) -> None:
    for word in words:
        if not isinstance(word, str):
            raise UsageError(f"`run_sweep` must get settings as strings, got {word!r}; write run_sweep(*settings).")
    for word in split_fixed(words)[0]:
        name = word.partition("=")[0].lstrip("-").replace("-", "_")
        if word.startswith("-") and word != "-m":
            raise UsageError(f"`run_sweep` must get settings, got '{word}'; an option is a keyword, as {name}=….")
        if name in _OWN_ARGUMENTS and "=" in word:
            raise UsageError(
                f"`{name}` must be given as a keyword argument, got '{word}'; write {name}=… outside the quotes."
            )


def _as_listed(name: str, value: Any) -> Any:
    """The value of a repeatable option as a list, also where it is given as the text of a single one."""
    form = known_options()[name].form
    if not isinstance(value, str) or form in (Form.ONE, Form.FLAG):
        return value
    return [value] if form is Form.SEVERAL else [value.split(",")] if form is Form.GROUPS else value.split(",")


class _Output:
    """Where a display is shown: in a kernel the cell's output, elsewhere this process's console; `quiet` shows none."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._cell = CellOutput() if in_kernel() else None
        self.console: Console = make_console() if self._cell is None else self._cell.console
        self.console.quiet = quiet
        self.live_region = terminal_region if self._cell is None else self._cell.live_region

    def print_line(self, line: str) -> None:
        """Print a line without wrapping it, so that it can be copied."""
        self.console.print(printable(line), soft_wrap=True)
        self.draw()

    def draw(self) -> None:
        """Update the cell's output."""
        if self._cell is not None:
            self._cell.draw()

    def wait(self, seconds: float) -> None:
        """Update the output and sleep."""
        self.draw()
        time.sleep(seconds)


class _Driver:
    """The command in a child process and a new session, so that interrupts reach it only from here, each once."""

    def __init__(self, output: _Output) -> None:
        self._output = output
        self._num_forwarded = 0
        self._began = time.time()
        self.num_interrupts = 0
        self.status: int | None = None

    def interrupt(self) -> None:
        """Stop after the running epochs; on a second call, at once."""
        self.num_interrupts += 1

    def drive(self, command: Sequence[str], sweep: SweepPaths) -> list[str]:
        """Start the command, show its runs until it has ended, and return the errors that it printed."""
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "runmanager.cli.subprocess_main",
                    str(os.getpid()),
                    command[0],
                    "--quiet",
                    "--yes",
                    *command[1:],
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the same is in the files
                stderr=errors,
                start_new_session=True,
            )
            try:
                self._follow(process, sweep)
            except BaseException:
                process.terminate()
                raise
            errors.seek(0)
            return [line.removeprefix("error: ") for line in errors.read().splitlines()]

    def _follow(self, process: "subprocess.Popen[bytes]", sweep: SweepPaths) -> None:
        def has_left() -> bool:
            self.status = process.poll()
            return self.status is not None

        def wait(seconds: float) -> None:
            self._forward_interrupts(process)
            self._output.wait(seconds)

        while not has_left() and not _is_driver_of(sweep, process.pid):
            wait(POLL_SECONDS)
        if self.status is None or (self.status in _STATUSES_WITH_RUNS and sweep.record.exists()):
            observer = HeartbeatObserver(wait=wait)
            reader = SweepReader(sweep, observer=observer, queue=local_slurm_queue())
            output = self._output
            follow_runs(
                reader,
                output.console,
                observer=observer,
                live_region=output.live_region,
                has_left=has_left,
                since=self._began,
            )

    def _forward_interrupts(self, process: "subprocess.Popen[bytes]") -> None:
        for number in range(self._num_forwarded, self.num_interrupts):
            process.send_signal(signal.SIGINT)
            self._output.print_line(
                "Stopping at once." if number else "Stopping after this epoch; interrupt again to stop at once."
            )
        self._num_forwarded = self.num_interrupts


def _is_driver_of(sweep: SweepPaths, pid: int) -> bool:
    """Whether process `pid` has begun to run the sweep."""
    try:
        plan = read_sweep_record(sweep)
    except RecordError:
        return False  # the process reads it too, and reports the error
    return plan is not None and any(each.pid == pid for each in plan.drivers)
