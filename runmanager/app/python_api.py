"""Sweeps from Python, for example from a notebook: started or watched, with a live table in the cell's output."""

import contextlib
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

from runmanager.app.display.output import ConsoleOutput, output_of_process
from runmanager.app.display.watching import POLL_SECONDS, follow_runs
from runmanager.app.follow.sweep_state import SweepReader
from runmanager.app.request.command import option_words
from runmanager.app.request.command_reader import split_fixed
from runmanager.app.request.sweep_request import Form, SweepRequest
from runmanager.app.request.sweep_request import options as known_options
from runmanager.errors import RecordError, SweepError, UsageError
from runmanager.launching.launchers import local_queue
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.settings.secrets import masked_words
from runmanager.records.sweep.lookup import find_sweep
from runmanager.results.sweep import Sweep
from runmanager.signals import handle_signals
from runmanager.text import shell_command
from runmanager.tracking.environment.cell_process import refuse_several_ranks
from runmanager.validation import suggestion

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
    output = output_of_process()
    reader = SweepReader(paths, observer=HeartbeatObserver(wait=output.wait), queue=local_queue())
    try:
        follow_runs(reader, output, metric=metric)
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
    output = output_of_process(quiet=request.quiet)
    output.print_line(f"$ {shell_command(masked_words(['runmanager', *command]))}")
    sweep = SweepPaths(Path(output_root) / name)
    status, lines = _drive(command, sweep, output)
    if status not in _STATUSES_WITH_RUNS or not sweep.record.exists():
        fault = UsageError if status == _USAGE_STATUS else SweepError
        raise fault("\n".join(lines) or f"The sweep's driver must end by itself, got status {status}.")
    for line in lines:
        output.print_line(line)
    return Sweep(sweep.root)


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


def _drive(command: Sequence[str], sweep: SweepPaths, output: ConsoleOutput) -> tuple[int, list[str]]:
    """Run the command, show its runs until it has ended, and return its status and the errors that it printed.

    It has a session of its own, so that interrupts reach it only from here, each once. Raises `KeyboardInterrupt` after
    any.
    """
    began, num_interrupts, num_forwarded = time.time(), 0, 0

    def interrupt() -> None:
        nonlocal num_interrupts
        num_interrupts += 1

    def wait(seconds: float) -> None:
        nonlocal num_forwarded
        while num_forwarded < num_interrupts:
            process.send_signal(signal.SIGINT)
            if not num_forwarded:  # the driver says what it does about it
                output.print_line("The sweep is asked to stop; interrupt again to stop at once.")
            num_forwarded += 1
        output.wait(seconds)

    def has_left() -> bool:
        return process.poll() is not None

    def has_begun() -> bool:
        with contextlib.suppress(RecordError):  # the process reads it too, and reports the error
            return any(each.pid == process.pid for each in reader.drivers_at_work)
        return False

    reader = SweepReader(sweep, observer=HeartbeatObserver(wait=wait), queue=local_queue())
    child = [sys.executable, "-m", "runmanager.cli.subprocess_main", str(os.getpid())]
    with tempfile.TemporaryFile("w+") as errors, handle_signals((signal.SIGINT,), interrupt):
        process = subprocess.Popen(
            [*child, command[0], "--quiet", "--yes", *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the same is in the files
            stderr=errors,
            start_new_session=True,
        )
        try:
            while not has_left() and not has_begun():
                wait(POLL_SECONDS)
            if process.returncode is None or (process.returncode in _STATUSES_WITH_RUNS and sweep.record.exists()):
                follow_runs(reader, output, has_left=has_left, since=began)
        except BaseException:
            process.terminate()
            raise
        errors.seek(0)
        lines = [line.removeprefix("error: ") for line in errors.read().splitlines()]
    if num_interrupts:
        output.print_line("Interrupted; the same call resumes the sweep.")
        raise KeyboardInterrupt
    return process.returncode, lines
