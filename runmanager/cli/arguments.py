"""Arguments and options that several commands share, and what is refused where an option is repeated."""

import csv
import inspect
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from typer.core import TyperCommand

from runmanager.app.request.command_reader import split_fixed
from runmanager.errors import RunManagerError, UsageError
from runmanager.records.sweep.lookup import find_run, find_sweep, known_runs, known_sweeps
from runmanager.records.sweep.sweep_record import SweepRecord, read_sweep_record
from runmanager.text import format_value, printable_line, shell_quote

if TYPE_CHECKING:
    from runmanager.records.storage.reader import StoredRun

_SHELL_SYNTAX = re.compile(r"""^=|[\s;&|<>$`\\"'()!{}*?~#^]""")


def complete_sweeps(incomplete: str) -> list[str]:
    """Complete the names of known sweeps, and folders if a path was begun."""
    return [*_matching(incomplete, known_sweeps()), *_matching(incomplete, _sibling_folders(incomplete))]


def _sibling_folders(path: str) -> list[str]:
    before = path[: path.rfind("/") + 1]
    if not before or not Path(before).is_dir():
        return []
    return sorted(before + entry.name for entry in os.scandir(before) if entry.is_dir())


def complete_runs(incomplete: str) -> list[str]:
    """Complete SWEEP/RUN, or the eight-digit signature of a run."""
    runs = known_runs()
    digits = [name.rpartition("-")[2] for name in runs] if incomplete else []
    return _matching(incomplete, [*runs, *digits])


def complete_targets(incomplete: str) -> list[str]:
    """Complete what `complete_sweeps` and `complete_runs` do."""
    return list(dict.fromkeys([*complete_sweeps(incomplete), *complete_runs(incomplete)]))


def complete_setting_names(incomplete: str) -> list[str]:
    """Complete the names of all settings and groups."""
    from runmanager.app.reference.settings_reference import sections

    known = sections()
    names = [key for each in known for key in (each.name, *(setting.key for setting in each.settings)) if key]
    return _matching(incomplete, dict.fromkeys(names))


def complete_axes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the settings of the command's sweep, varying ones first, then `any`; after `+`, one more setting."""
    before = incomplete[: incomplete.rfind("+") + 1]
    plan = _plan_of(ctx)
    names = [*_settings(plan), *([] if before else ["any"])]
    return _matching(incomplete, [before + name for name in names])


def complete_crossovers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete `num_parameters` and the settings of the command's sweep."""
    return _matching(incomplete, ["num_parameters", *_settings(_plan_of(ctx))])


def complete_baselines(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the values of the compared axis."""
    plan = _plan_of(ctx)
    values: list[Any] = [] if plan is None else plan.axes.get(ctx.params.get("axis") or "device", [])
    return _matching(incomplete, map(format_value, values))


def complete_metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the metrics by which runs can be compared: the built-in ones, and those of the command's sweep.

    What was logged is read from a single run, as a shell waits for the answer.
    """
    from runmanager.results.metrics.metric_lookup import known_metrics

    return _matching(incomplete, [*known_metrics(_some_run(ctx)), "time_to_accuracy="])


def _some_run(ctx: typer.Context) -> "list[StoredRun]":
    """The first run with epochs of the sweep that the command names, if it can be read."""
    from runmanager.records.storage.reader import read_run, run_names

    try:
        paths = find_sweep(_sweep_name(ctx))
        first = next((each for name in run_names(paths) if (each := paths.run(name)).epochs.exists()), None)
        return [] if first is None else [read_run(first)]
    except (RunManagerError, OSError):
        return []


def complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the columns of the command's sweep; after a comma, one more column."""
    from runmanager.results.table_model.columns import RUN_COLUMNS, result_columns

    before = incomplete[: incomplete.rfind(",") + 1]
    names = dict.fromkeys([*RUN_COLUMNS, *_settings(_plan_of(ctx)), *result_columns(()), *_written_columns(ctx)])
    return _matching(incomplete, [before + name for name in names])


def _written_columns(ctx: typer.Context) -> list[str]:
    """The columns of the sweep's results.csv, which include logged metrics; empty on any error."""
    try:
        with find_sweep(_sweep_name(ctx)).results("csv").open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])
    except (RunManagerError, OSError, ValueError, csv.Error):
        return []


def _plan_of(ctx: typer.Context) -> SweepRecord | None:
    """The plan of the sweep that the command names; None on any error, as a shell cannot show it."""
    try:
        return read_sweep_record(find_sweep(_sweep_name(ctx)))
    except (RunManagerError, OSError):
        return None


def _sweep_name(ctx: typer.Context) -> str:
    # If the command ends in an option without its value, the parser leaves the positional arguments in `args`.
    return ctx.params.get("sweep") or next(iter(ctx.params.get("sweeps") or ctx.args), "")


def _settings(plan: SweepRecord | None) -> list[str]:
    if plan is None:
        return []
    of_cells = [name for cell in plan.planned for name in cell.choices_and_settings]
    return list(dict.fromkeys([*plan.axes, *of_cells, *(plan.choices or {}), *plan.settings]))


def _matching(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin with `incomplete`; none with shell syntax, as a shell inserts them unquoted."""
    begun = (name for name in names if name.startswith(incomplete))
    return [name for name in begun if not _SHELL_SYNTAX.search(name) and printable_line(name) == name]


SweepName = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP", help="The sweep's folder, or its name under outputs/.", autocompletion=complete_sweeps
    ),
]

SweepNames = Annotated[
    list[str],
    typer.Argument(
        metavar="SWEEP",
        help="The folder of a sweep, or its name under outputs/; several are shown together.",
        autocompletion=complete_sweeps,
    ),
]

Target = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP|RUN",
        help="A sweep or a run: a folder, a sweep's name under outputs/, SWEEP/RUN, or the first characters of a run.",
        autocompletion=complete_targets,
    ),
]

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's folder, SWEEP/RUN, or the first characters of its name or of its eight-digit signature; "
        "RUN may also be some of its settings, as in first/lr=0.1.",
        autocompletion=complete_runs,
    ),
]

RunSettings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME=VALUE]...", help="Settings of the run, after a SWEEP.", show_default=False),
]


BetterOption = Annotated[
    str | None,
    typer.Option(
        metavar="max|min",
        help="Whether larger (max) or smaller (min) values of the metric are better. Default: as the runs declare, "
        "else by its name.",
    ),
]

AtOption = Annotated[
    Literal["last", "best"],
    typer.Option(help="The epoch of each run that counts for a metric of epochs; the best one flatters the result."),
]


class RunFormat(StrEnum):
    """Output formats of commands on single runs."""

    TEXT = "text"
    JSON = "json"


RunFormatOption = Annotated[RunFormat, typer.Option("--format", help="JSON has every value in full.")]

TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Print the command even if it imports and calls a `_target_` that the run's files name."
    ),
]


def read_named_run(name: str, settings: Sequence[str] | None = None) -> "StoredRun":
    """Read the stored run that a command names: a run, or a sweep and settings of one of its runs.

    Raises `UsageError` if no run or several match.
    """
    from runmanager.records.storage.reader import read_run

    if odd := next((word for word in settings or () if "=" not in word), None):
        raise UsageError(
            f"A run must be named as RUN, SWEEP/RUN or SWEEP NAME=VALUE, got '{odd}' after '{name}'; "
            f"write {shell_quote('/'.join([name, odd]))}."
        )
    return read_run(find_run("/".join([name, ",".join(settings)]) if settings else name))


_FIXED = "runmanager.fixed"
_DEBUG = {"--debug": "Add the traceback of an error."}


class UniqueOptionsCommand(TyperCommand):
    """A command that raises `UsageError` if an option that takes one value is given more than once.

    Its help also names `--debug`, which is taken from any command line before it is parsed, and `passed_on`: options
    by their text, as in `--zip NAMES`, that the command passes on unparsed.
    """

    passed_on: ClassVar[Mapping[str, str]] = {}
    _is_in_help = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; called by Typer."""
        self._is_in_help = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_in_help = False

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters that are parsed, and in the help the others; called by Typer."""
        *own, last = super().get_params(ctx)
        if not self._is_in_help:
            return [*own, last]
        return [*own, *_described({**self.passed_on, **_DEBUG}), last]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; called by Typer."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        single = [
            param for param in given if not getattr(param, "is_flag", True) and not getattr(param, "multiple", False)
        ]
        counts = Counter(param.opts[-1] for param in single)
        faults = [
            f"`{option}` must be given once, got it {count} times; give one value."
            for option, count in counts.items()
            if count > 1
        ]
        if faults:
            raise UsageError("\n".join(faults))
        return super().parse_args(ctx, args)


class FixedArgumentsCommand(UniqueOptionsCommand):
    """A command that keeps what follows `--` apart, for `fixed_arguments`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before `--`; called by Typer."""
        own, fixed = split_fixed(args)
        ctx.meta[_FIXED] = tuple(fixed)
        return super().parse_args(ctx, own)


def fixed_arguments(ctx: Any) -> tuple[str, ...]:
    """Return the arguments after `--` of the command that Typer's context `ctx` is of."""
    return tuple(ctx.meta[_FIXED])


def _described(options: Mapping[str, str]) -> list[Any]:
    """Return options for the help alone, from their words and texts."""

    def command(**given: Any) -> None: ...

    parameters = [_parameter(*words.partition(" ")[::2], text) for words, text in options.items()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return list(typer.main.get_command(app).params)


def _parameter(option: str, metavar: str, text: str) -> inspect.Parameter:
    kind = str | None if metavar else bool
    return inspect.Parameter(
        option.strip("-").replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=None if metavar else False,
        annotation=Annotated[kind, typer.Option(option, metavar=metavar or None, help=text)],
    )
