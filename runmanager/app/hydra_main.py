"""The built-in job as a Hydra application: its command, its faults and its exit status."""

import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from runmanager.app.display.error_line import print_error, show_first_words
from runmanager.app.request.command import HYDRA_OPTIONS, MULTIRUN, RERUN, Command, quote_raw, take_value
from runmanager.app.request.command_reader import read_words
from runmanager.app.request.sweep_request import Kind, Part, flag_of, options
from runmanager.errors import ConfigurationError, RunManagerError, SweepError, UsageError, error_chain
from runmanager.records.files.file_errors import require_current_folder
from runmanager.records.host.import_path import search_current_folder
from runmanager.records.host.standard_streams import print_line, repaired_streams, report_lost_output
from runmanager.records.settings.secrets import masked_words, refuse_masks
from runmanager.signals import INTERRUPTED_STATUS
from runmanager.validation import fault

_BROKEN_STATUS = 1
_USAGE_STATUS = 2
_PRELOAD = ("torch", "runmanager.app.forkserver_imports")
_APPLICATIONS = "hydra/sweeper=runmanager"
_PLUGINS = ("hydra.launcher", "hydra.sweeper")
_WITHOUT_PLAN = {"dry_run": "that sweeper has no plan to show", "restore": "it runs what it chooses"}


class _JobCommand:
    """A command of the built-in job: what it asks of the sweep, and the arguments for Hydra."""

    def __init__(self, command: Command) -> None:
        self.request = command.request
        self._command = command
        self.words = tuple(quote_raw(word) for word in command.settings)

    @property
    def runs_something(self) -> bool:
        return not self._command.only_shows

    @property
    def is_sweep(self) -> bool:
        """Whether the command runs cells; its output then only reports on them."""
        return self.runs_something and not self.request.dry_run

    def report_lost_output(self, error: OSError) -> None:
        """Report that stdout was lost, except for a quiet sweep, which prints nothing."""
        if not (self.is_sweep and self.request.quiet):
            report_lost_output(error, is_sweep=self.is_sweep)

    @property
    def is_multirun(self) -> bool:
        return any(word in MULTIRUN for word in self.words)

    @property
    def other_sweeper(self) -> str | None:
        """The argument that selects a sweeper other than `grid`."""
        chosen = [word for word in self.words if word.startswith("hydra/sweeper=")]
        return chosen[-1] if chosen and chosen[-1] != "hydra/sweeper=grid" else None

    def faults(self) -> list[str]:
        """Messages on options that it does not take, on arguments that are not NAME=VALUE, and on those in vain."""
        other = self.other_sweeper
        faults = self._command.refusals(Kind.JOB, names=_setting_names() if self._command.unknown else ())
        faults += [] if other is None else self._in_vain(other)
        words = deque(self.words)
        while words:
            word = words.popleft()
            option = word.partition("=")[0]
            if option in _PLUGINS:
                choice = word.replace(".", "/", 1)
                faults.append(f"`{option}` must be chosen as a group, got `{word}`; write {choice}.")
            elif option == RERUN:
                way_out = "`runmanager reproduce RUN` gives the command that makes a run again"
                faults.append(f"`{RERUN}` must be left out, as it loads a pickle, which can run any code; {way_out}.")
                take_value(word, words)
            elif option in HYDRA_OPTIONS:
                take_value(word, words)
            elif word.startswith("-") and option != word:
                faults.append(f"`{option}` must be given without a value, got `{word}`.")
        return faults

    def _in_vain(self, sweeper: str) -> list[str]:
        """Faults of options that another sweeper does not have."""
        if sweeper == _APPLICATIONS:
            return [f"`hydra/sweeper` must be grid for this job, got `{_APPLICATIONS}`, which is for other ones."]
        given = [name for name in self._command.given if options()[name].part is Part.SWEEPER]
        return [
            fault(flag_of(name), f"be left out under `{sweeper}`", "it", _WITHOUT_PLAN.get(name, ""))
            for name in given
            if name not in ("quiet", "yes")
        ]

    def for_hydra(self) -> list[str]:
        """The arguments for Hydra. A single run is a grid of one cell; `multirun=false` marks it for the sweeper."""
        words = [word for word in self.words if word not in (*MULTIRUN, "--run", "-r")]
        if not self.runs_something:
            return words
        settings = self._command.hydra_words(Kind.JOB)
        if not self.is_multirun:
            settings.append("hydra.sweeper.multirun=false")
        if self.other_sweeper is not None:  # it does not have these settings
            settings = [word for word in settings if not word.startswith("hydra.sweeper.")]
        return ["-m", *words, *settings]


def _setting_names() -> list[str]:
    from runmanager.app.compose.schema import Config  # late: it takes time, and few commands are wrong

    return [each.name for each in fields(Config)]


def task(cfg: Any) -> float | None:
    """Run one cell; called by Hydra. torch is imported only here."""
    from runmanager.app.run_cell import run_cell

    return run_cell(cfg)


def main(
    argv: Sequence[str] | None = None,
    *,
    program: Sequence[str] = ("python", "-m", "runmanager"),
    task: Callable[[Any], Any] = task,
) -> int:
    """Run the command `argv` (default: the process's arguments) and return its exit status.

    0: every cell is finished or skipped; 1: one failed, was killed or crashed, or the launcher or the tables failed
    after runs had begun; 2: nothing was run, and errors say why; 130: interrupted. `program` is the called program, for
    the record. `task` is run for each cell.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    command = _JobCommand(read_words(given, takes_program=False))
    masked_words(given)  # from here on no message shows what they hold
    with repaired_streams(command.report_lost_output) as output:
        status = _status_of(command, [*program, *given], task)
    return _BROKEN_STATUS if status == 0 and output.has_failed and not command.is_sweep else status


def _status_of(command: _JobCommand, called: Sequence[str], task: Callable[[Any], Any]) -> int:
    try:
        _run_hydra(command, called, task)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        print("Interrupted before anything was run.", file=sys.stderr)
        return INTERRUPTED_STATUS
    except Exception as error:
        if command.request.debug:
            print_line(traceback.format_exc(), sys.stderr)
        for line in _faults(error, command):
            print_error(line)
        return _BROKEN_STATUS if isinstance(error, SweepError) else _USAGE_STATUS
    return 0


def _run_hydra(command: _JobCommand, called: Sequence[str], task: Callable[[Any], Any]) -> None:
    if sys.platform == "win32":
        raise RunManagerError("runmanager must run on Linux or macOS, got Windows; use WSL.")
    require_current_folder()  # Hydra asks for it without a word on what is wrong
    if command.runs_something and not command.request.quiet:
        show_first_words()
    from runmanager.app.compose.saved_preset import preset_faults

    refuse_masks(command.words)
    if faults := [*command.faults(), *preset_faults(command.words)]:
        raise ConfigurationError(faults)
    from runmanager.tracking.environment.cell_process import refuse_several_ranks

    if command.runs_something:
        refuse_several_ranks(of_sweep=True)
    import hydra

    from runmanager.app.compose.schema import conf_folder
    from runmanager.app.driver.other_sweepers import OtherSweeper
    from runmanager.launching.hydra_internals import groups_without_copies, version_base
    from runmanager.tracking.environment.cell_process import is_started_again
    from runmanager.tracking.environment.environment import environment_for_children

    _register()
    search_current_folder()  # user-defined models and datasets are there
    with _hydra_arguments(command.for_hydra()):
        if is_started_again():
            raise UsageError(
                "A cell of the built-in job must train in one process, got its own command again inside it; what is to "
                "run beside it must be another program."
            )
        with (
            environment_for_children(called),
            groups_without_copies(),
            OtherSweeper(is_single=not command.is_multirun, quiet=command.request.quiet).watched(),
        ):
            hydra.main(config_path=str(conf_folder()), config_name="config", **version_base())(task)()


def _register() -> None:
    from runmanager.app.compose.saved_preset import UserPresets
    from runmanager.app.compose.schema import register_schema
    from runmanager.app.programs.grid_sweeper import register_sweeper
    from runmanager.launching.hydra_launcher import register_plugin
    from runmanager.launching.launchers import register_launchers

    register_schema()
    register_launchers(preload=_PRELOAD)
    register_sweeper()
    register_plugin(UserPresets)


@contextmanager
def _hydra_arguments(words: Sequence[str]) -> Iterator[None]:
    """Set what Hydra reads from the process: the arguments, and that it raises errors rather than print them."""
    arguments, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [arguments[0] if arguments else "runmanager", *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = arguments
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error


def _faults(error: BaseException, command: _JobCommand) -> Sequence[str]:
    """An error as lines: ours unchanged; for Hydra's, every fault of the command's overrides."""
    for each in error_chain(error):
        if isinstance(each, ConfigurationError):
            return each.faults
        if isinstance(each, RunManagerError):
            return str(each).splitlines()
    from runmanager.app.compose.override_errors import command_faults

    explained = command_faults(command.for_hydra())
    if explained:
        return explained
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return [f"{type(error).__name__}: {first} (--debug shows where)"]
