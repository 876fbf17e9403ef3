"""The `runmanager` command line: its commands, their order, and how errors are reported."""

import errno
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, NoReturn

import typer

from runmanager import __version__
from runmanager.app.display.error_line import print_error
from runmanager.app.request.command_reader import split_fixed
from runmanager.cli.arguments import FixedArgumentsCommand, UniqueOptionsCommand
from runmanager.cli.commands.adopt import adopt
from runmanager.cli.commands.best import best
from runmanager.cli.commands.compare import compare
from runmanager.cli.commands.doctor import doctor
from runmanager.cli.commands.duel import DuelCommand, duel
from runmanager.cli.commands.export import export
from runmanager.cli.commands.help import help_
from runmanager.cli.commands.ls import diff, ls, show
from runmanager.cli.commands.report import report
from runmanager.cli.commands.reproduce import reproduce
from runmanager.cli.commands.rm import mv, note, rm, tag
from runmanager.cli.commands.scalars import scalars
from runmanager.cli.commands.schema import schema
from runmanager.cli.commands.sweep import HELP_FLAGS, PROGRAM_METAVAR, DemoCommand, SweepCommand, demo, run, sweep
from runmanager.cli.commands.table import table
from runmanager.cli.commands.tensorboard import tensorboard
from runmanager.cli.commands.tune import tune
from runmanager.cli.commands.ui import ui
from runmanager.cli.commands.watch import watch
from runmanager.cli.hydra_application import PASS_THROUGH
from runmanager.errors import ConfigurationError, RunManagerError, UsageError
from runmanager.records.files.file_errors import require_current_folder
from runmanager.records.files.paths import name_length_fault
from runmanager.records.host.standard_streams import print_line, repaired_streams, report_lost_output
from runmanager.records.sweep.lookup import newest_sweeps
from runmanager.signals import INTERRUPTED_STATUS

# What every error of a command line is. Its name and module differ between the versions of Typer.
_TYPER_ERROR = next(each for each in reversed(typer.BadParameter.__mro__) if hasattr(each, "format_message"))

app = typer.Typer(
    name="runmanager",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["--help", "-h"]},
)

_SWEEP_COMMANDS: tuple[tuple[Callable[..., object], str], ...] = (
    (sweep, "batch_size=100,1000 device=cpu,cuda --name first"),
    (run, "lr=0.01 device=cuda"),
    (demo, "epochs=3"),
)
_DUEL = "device=cpu device=cuda batch_size=1000"
_OTHER_COMMANDS: tuple[tuple[Callable[..., object], str], ...] = (
    (ls, "--where 'failed>0' --sort size_bytes"),
    (table, "first --where 'device==cpu and batch_size>500' --sort val_accuracy"),
    (compare, "first --axis batch_size"),
    (best, "first --metric val_accuracy"),
    (show, "first/batch_size=100,device=cpu"),
    (scalars, "first"),
    (diff, "first/batch_size=100,device=cpu first/batch_size=1000,device=cpu"),
    (reproduce, "first/batch_size=100,device=cpu"),
    (report, "first"),
    (export, "first --to parquet"),
    (adopt, "multirun/2026-11-22/21-36-42 --name earlier"),
    (tag, "first paper baseline"),
    (note, "first 'larger batches need a warm-up'"),
    (mv, "first second"),
    (rm, "first/batch_size=100,device=cpu --yes"),
    (watch, "first"),
    (schema, "run"),
    (tensorboard, "first"),
    (ui, ""),
    (doctor, ""),
    (help_, "batch_size"),
)
"""Each command with the arguments of the example in its help."""

_SWEEP_METAVARS = ("SWEEP", "RUN", "SWEEP|RUN")


def _name(command: Callable[..., object]) -> str:
    return command.__name__.rstrip("_")


def _example(command: Callable[..., object], words: str) -> str:
    return f"Example: `{' '.join(('runmanager', _name(command), words)).strip()}`"


for _command, _words in _SWEEP_COMMANDS:
    app.command(
        cls=DemoCommand if _command is demo else SweepCommand,
        options_metavar="[SETTINGS and OPTIONS]..." if _command is demo else PROGRAM_METAVAR,
        epilog=_example(_command, _words),
    )(_command)
app.command(
    cls=DuelCommand,
    context_settings=PASS_THROUGH | {"allow_interspersed_args": True},  # its options may follow its sides
    options_metavar="SIDE SIDE [OVERRIDES]...",
    epilog=_example(duel, _DUEL),
)(duel)
app.command(cls=FixedArgumentsCommand, epilog=_example(tune, "model=cnn batch_size=10000 --seconds 60"))(tune)
for _command, _words in _OTHER_COMMANDS:
    app.command(_name(_command), cls=UniqueOptionsCommand, epilog=_example(_command, _words))(_command)


COMMANDS = frozenset(each.name or each.callback.__name__ for each in app.registered_commands if each.callback)
"""The names of all commands."""


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"runmanager {__version__}")
        raise typer.Exit()


@app.callback(
    epilog="Begin with `runmanager demo`. `runmanager COMMAND --help` has an example of each. "
    "Add `--debug` to any command for the traceback of an error."
)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run a grid of PyTorch settings, watch it live, and compare what came out."""


def main() -> NoReturn:
    """Run the process's command line and exit with its status."""
    status = run_command(sys.argv[1:])
    if status == INTERRUPTED_STATUS:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C would be told as an error of Python's end
    sys.exit(status)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status.

    0: every cell is finished or skipped. 1: a run failed, was killed or crashed. 2: the command or the configuration
    is invalid. 130: interrupted. Errors go to stderr, one line each. `--debug`, anywhere in `arguments`, adds the
    traceback.
    """
    is_sweep = _runs_cells(arguments)
    with repaired_streams(partial(report_lost_output, is_sweep=is_sweep)) as output:
        status = _status_of(arguments)
    return 1 if status == 0 and output.has_failed and not is_sweep else status


def _runs_cells(arguments: Sequence[str]) -> bool:
    """Whether the command runs cells, whose output then only reports on them; no help is asked for."""
    name, others = "".join(arguments[:1]), arguments[1:]
    is_asked = any(word in HELP_FLAGS for word in split_fixed(others)[0])
    return not is_asked and (name in ("demo", "duel") or (name in ("run", "sweep") and bool(others)))


def _status_of(arguments: Sequence[str]) -> int:
    if sys.platform == "win32":
        return _print_faults(["Windows is not supported; use Linux, macOS, or Linux inside Windows (WSL 2)."], status=2)
    own, _ = split_fixed(arguments)  # the rest is for a script
    debug = "--debug" in own
    rest = [*(argument for argument in own if argument != "--debug"), *arguments[len(own) :]]
    try:
        group = typer.main.get_command(app)
        if rest and not rest[0].startswith("-"):
            # A command follows: Typer would import Pydantic for these options, which takes a fifth of the start.
            group.params, group.add_help_option = [], False
        # The context's `obj` passes the flag to the commands that call the Hydra application.
        returned = group.main(rest or ["--help"], prog_name="runmanager", standalone_mode=False, obj=debug)
        return returned if isinstance(returned, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS
    except SystemExit as end:  # raised by Typer after shell completion
        return end.code if isinstance(end.code, int) else 0
    except Exception as error:
        if debug:
            print_line(traceback.format_exc(), sys.stderr)
        return _report_error(error)


def _report_error(error: Exception) -> int:
    """Print an error and return the exit status for it."""
    try:
        require_current_folder()
    except UsageError as missing:
        return _print_faults([str(missing)], status=2)  # the cause of nearly any error: no relative path is found
    if isinstance(error, ConfigurationError):
        return _print_faults(error.faults, status=2)
    if isinstance(error, RunManagerError):
        return _print_faults(str(error).split("\n"), status=2)
    if isinstance(error, _TYPER_ERROR):
        found: Any = error
        message = " ".join(found.format_message().split()).replace("Value error, ", "")
        context = getattr(error, "ctx", None)
        named = context.command_path if context else "runmanager"
        first = f"{message} See" if message.endswith("?") else f"{message.rstrip('.')}; see"
        return _print_faults([f"{first} {named} --help.{_sweeps_to_name(error)}"], status=found.exit_code)
    if isinstance(error, OSError):
        is_too_long = error.errno == errno.ENAMETOOLONG and isinstance(error.filename, str)
        if is_too_long and (line := name_length_fault("A name", error.filename)):
            return _print_faults([line.replace("`", "")], status=2)
        return _print_faults([str(error)], status=1)
    kind = type(error).__name__
    return _print_faults([f"unexpected {kind}: {error}; the same command with --debug shows where."], status=1)


def _sweeps_to_name(error: Exception) -> str:
    """Name the sweeps there are where one is missing in a command."""
    missing = getattr(error, "param", None)
    if getattr(missing, "metavar", None) not in _SWEEP_METAVARS:
        return ""
    try:
        return f" {newest_sweeps()}"
    except OSError:
        return ""


def _print_faults(faults: Sequence[str], *, status: int) -> int:
    for fault in faults:
        print_error(fault)
    return status
