"""`python -m runmanager`: the Hydra application, its flags and exit status."""

import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from runmanager.app.compose.override_quoting import quote_raw
from runmanager.app.display.error_line import print_error
from runmanager.app.display.first_words import show_first_words
from runmanager.app.sweeper_flags import OPTIONS, SweeperFlags
from runmanager.errors import ConfigurationError, RunManagerError, SweepError, UsageError, error_chain
from runmanager.records.files.file_errors import require_current_folder
from runmanager.records.host.import_path import search_current_folder
from runmanager.records.host.standard_streams import print_line, repaired_streams, report_lost_output
from runmanager.records.settings.secrets import masked_words, refuse_masks
from runmanager.signals import INTERRUPTED_STATUS
from runmanager.text import in_backticks, shell_join
from runmanager.validation import nearest_names

__all__ = ["main", "task"]

_BROKEN_STATUS = 1
_USAGE_STATUS = 2
_FLAGS = ("--dry-run", "--debug", "--quiet", "--yes", "--restore")
_PRELOAD = ("torch", "runmanager.app.forkserver_imports")
_OPTIONS_WITH_VALUE = (
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
    *("--info", "-i"),
)
_RERUN = "--experimental-rerun"
_APPLICATIONS = "hydra/sweeper=runmanager"
_PLUGINS = ("hydra.launcher", "hydra.sweeper")
_HYDRA_FLAGS = (
    *("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m"),
    *("--shell-completion", "-sc"),
)
_INFO_OPTIONS = (
    *("--help", "-h", "--hydra-help", "--version", "--cfg", "-c", "--info", "-i"),
    *("--shell-completion", "-sc"),
)
_OF_SCRIPTS = (  # options that only scripts have
    *("--argument", "--better", "--metric", "--module", "--processes", "--python", "--resume-with", "--scalar"),
    *("--unchecked", "--unsigned"),
)
_AS_SETTINGS = {  # options of scripts that are settings here
    **{f"--{name}": name.replace("-", "_") for name in ("name", "output-root", "resume", "rerun-changed", "device")},
    **{
        f"--{name}": f"hydra.launcher.{name.replace('-', '_')}"
        for name in ("workers", "gpus", "gpus-per-run", "timeout", "retries")
    },
    "--launcher": "hydra/launcher",
    "--slurm": "hydra/launcher=slurm hydra.launcher.",
}
_NAMES_OF_OPTIONS = [word for word in (*_FLAGS, *OPTIONS, *_OPTIONS_WITH_VALUE, *_HYDRA_FLAGS) if word.startswith("--")]


@dataclass(frozen=True)
class _Command:
    """A parsed command line: the application's flags, those of its sweeper, and the arguments for Hydra."""

    flags: frozenset[str]
    words: tuple[str, ...]
    of_sweeper: SweeperFlags

    @classmethod
    def read(cls, argv: Sequence[str]) -> "_Command":
        of_sweeper = SweeperFlags.split(argv)
        flags = frozenset(of_sweeper.words) & frozenset(_FLAGS)
        words = tuple(quote_raw(word) for word in of_sweeper.words if word not in _FLAGS)
        return cls(flags, words, of_sweeper)

    @property
    def runs_something(self) -> bool:
        return not any(word == name or word.startswith(f"{name}=") for word in self.words for name in _INFO_OPTIONS)

    @property
    def is_sweep(self) -> bool:
        """Whether the command runs cells; its output then only reports on them."""
        return self.runs_something and "--dry-run" not in self.flags

    def report_lost_output(self, error: OSError) -> None:
        """Report that stdout was lost, except for a quiet sweep, which prints nothing."""
        if not (self.is_sweep and "--quiet" in self.flags):
            report_lost_output(error, is_sweep=self.is_sweep)

    @property
    def is_multirun(self) -> bool:
        return any(word in ("-m", "--multirun") for word in self.words)

    @property
    def other_sweeper(self) -> str | None:
        """The argument that selects a sweeper other than `grid`."""
        chosen = [word for word in self.words if word.startswith("hydra/sweeper=")]
        return chosen[-1] if chosen and chosen[-1] != "hydra/sweeper=grid" else None

    def faults(self) -> list[str]:
        """Messages on arguments that are neither options nor NAME=VALUE, and on flags without effect."""
        faults = self.of_sweeper.faults(self.other_sweeper)
        if self.other_sweeper is not None and "--dry-run" in self.flags:
            faults.append(
                f"`--dry-run` must be left out under `{self.other_sweeper}`, got it; that sweeper has no plan to show."
            )
        if self.other_sweeper is not None and "--restore" in self.flags:
            faults.append(
                f"`--restore` must be left out under `{self.other_sweeper}`, got it; it runs what it chooses."
            )
        if self.other_sweeper == _APPLICATIONS:
            faults.append(f"`hydra/sweeper` must be grid for this job, got `{_APPLICATIONS}`, which is for other ones.")
        words = deque(self.words)
        while words:
            word = words.popleft()
            option = word.partition("=")[0]
            if not word.startswith("-"):
                if "=" not in word and word.endswith(".py"):
                    example = in_backticks(shell_join(["runmanager", "sweep", word, "lr=0.1,0.01"]))
                    faults.append(f"`{word}` must come before its settings, as in {example}; got it after them.")
                elif "=" not in word and not word.startswith("~"):
                    way_out = f"; write {word}=…" if word.replace(".", "_").isidentifier() else ""
                    faults.append(f"`{word}` must be NAME=VALUE, got no value{way_out}.")
                elif option in _PLUGINS:
                    choice = word.replace(".", "/", 1)
                    faults.append(f"`{option}` must be chosen as a group, got `{word}`; write {choice}.")
            elif option == _RERUN:
                way_out = "`runmanager reproduce RUN` gives the command that makes a run again"
                faults.append(f"`{_RERUN}` must be left out, as it loads a pickle, which can run any code; {way_out}.")
                _take_value(word, words)
            elif option in _OPTIONS_WITH_VALUE:
                _take_value(word, words)
            elif option in _HYDRA_FLAGS and option != word:
                faults.append(f"`{option}` must be given without a value, got `{word}`.")
            elif option in _AS_SETTINGS:
                said = f"`{option}` must be written as a setting here, got an option for scripts"
                faults.append(f"{said}; write {_as_setting(word, words)}.")
            elif option not in _HYDRA_FLAGS:
                faults.append(f"`{word}` must be an option, got an unknown one; {_meant(word, words)}")
        return faults

    def for_hydra(self) -> list[str]:
        """The arguments for Hydra. A single run is a grid of one cell; `multirun=false` marks it for the sweeper."""
        if not self.runs_something:
            return list(self.words)
        words = [word for word in self.words if word not in ("-m", "--multirun", "--run", "-r")]
        options = [f"hydra.sweeper.{flag[2:].replace('-', '_')}=true" for flag in _FLAGS if flag in self.flags]
        options = [word for word in options if not word.startswith("hydra.sweeper.debug")]
        options += self.of_sweeper.overrides()
        if not self.is_multirun:
            options.append("hydra.sweeper.multirun=false")
        if self.other_sweeper is not None:
            options = []  # it does not have these settings
        return ["-m", *words, *options]


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
    command = _Command.read(given)
    masked_words(given)  # from here on no message shows what they hold
    with repaired_streams(command.report_lost_output) as output:
        status = _status_of(command, [*program, *given], task)
    return _BROKEN_STATUS if status == 0 and output.has_failed and not command.is_sweep else status


def _take_value(word: str, following: deque[str]) -> str:
    """The value of an option: what follows `=`, or the next word, which is taken; empty if there is none."""
    _, has_value, value = word.partition("=")
    return value if has_value or not following else following.popleft()


def _meant(word: str, following: deque[str]) -> str:
    """What an unknown option may mean: a known one, or a setting, whose value then follows."""
    option = word.partition("=")[0]
    if near := nearest_names(option, _NAMES_OF_OPTIONS, max_names=1, cutoff=0.8):
        if near[0] in (*OPTIONS, *_OPTIONS_WITH_VALUE):
            _take_value(word, following)
        return f"did you mean '{near[0]}'?"
    value = _own_value(word, following)
    if option in _OF_SCRIPTS:
        return f"it goes with a script, as in `runmanager sweep {option} … train.py`."
    from runmanager.app.compose.schema import Config  # late: it takes time, and few commands are wrong

    name = option.lstrip("-").replace("-", "_")
    near = nearest_names(name, [each.name for each in fields(Config)], max_names=1, cutoff=0.7)
    return f"a setting is written {next(iter(near), name)}={value or '…'}."


def _own_value(word: str, following: deque[str]) -> str:
    """The value of an option that may have none, which is taken: a setting or an option that follows is not it."""
    stands_apart = "=" in word or (following and "=" not in following[0] and not following[0].startswith("-"))
    return _take_value(word, following) if stands_apart else ""


def _as_setting(word: str, following: deque[str]) -> str:
    """The words for a setting that is written as an option of scripts, whose value then follows."""
    option = word.partition("=")[0]
    if option == "--slurm":
        return f"{_AS_SETTINGS[option]}{_take_value(word, following) or 'NAME=…'}"
    if option == "--rerun-changed":
        return f"{_AS_SETTINGS[option]}=true"
    value = _own_value(word, following) or "…"
    return f"{_AS_SETTINGS[option]}={f'[{value}]' if option == '--gpus' else value}"


def _status_of(command: _Command, called: Sequence[str], task: Callable[[Any], Any]) -> int:
    try:
        _run_hydra(command, called, task)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        print("Interrupted before anything was run.", file=sys.stderr)
        return INTERRUPTED_STATUS
    except Exception as error:
        if "--debug" in command.flags:
            print_line(traceback.format_exc(), sys.stderr)
        for line in _faults(error, command):
            print_error(line)
        return _BROKEN_STATUS if isinstance(error, SweepError) else _USAGE_STATUS
    return 0


def _run_hydra(command: _Command, called: Sequence[str], task: Callable[[Any], Any]) -> None:
    if sys.platform == "win32":
        raise RunManagerError("runmanager must run on Linux or macOS, got Windows; use WSL.")
    require_current_folder()  # Hydra asks for it without a word on what is wrong
    if command.runs_something and "--quiet" not in command.flags:
        show_first_words()
    from runmanager.app.compose.user_presets import preset_faults

    refuse_masks(command.words)
    if faults := [*command.faults(), *preset_faults(command.words)]:
        raise ConfigurationError(faults)
    from runmanager.tracking.environment.rank_check import refuse_several_ranks

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
            OtherSweeper(is_single=not command.is_multirun, quiet="--quiet" in command.flags).watched(),
        ):
            hydra.main(config_path=str(conf_folder()), config_name="config", **version_base())(task)()


def _register() -> None:
    from runmanager.app.compose.schema import register_schema
    from runmanager.app.compose.user_presets import UserPresets
    from runmanager.app.programs.grid_sweeper import register_sweeper
    from runmanager.launching.hydra_launcher import register, register_plugin
    from runmanager.launching.slurm import register_slurm

    register_schema()
    register(preload=_PRELOAD)
    register_slurm()
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


def _faults(error: BaseException, command: _Command) -> Sequence[str]:
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
