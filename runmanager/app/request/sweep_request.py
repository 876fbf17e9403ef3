"""Every option of a sweep, declared once: the command line, Hydra's settings, Python's arguments and help follow.

Each Hydra application imports this at its start, so it needs Python's standard library alone.
"""

# ruff: noqa: RUF009  # `_option` makes a field
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any

CONTINUES = "hydra.sweeper.continues"
"""The setting with which the sweeper names the folder of the run that a cell of the built-in job continues."""

RUN_NAME = "hydra.sweeper.run_name"
"""The setting with which the sweeper names the run of a cell of the built-in job."""


class Kind(StrEnum):
    """What a sweep runs, in words."""

    JOB = "the built-in job"
    SCRIPT = "a script"
    APPLICATION = "a Hydra application"


_ALL = frozenset(Kind)


class Part(Enum):
    """Where Hydra has an option as a setting."""

    SWEEP = "sweep"  # of a cell of the built-in job; of an application's sweeper
    SWEEPER = "sweeper"
    LAUNCHER = "launcher"
    JOB = "job"  # of Hydra itself
    NOWHERE = ""


class Form(Enum):
    """How an option is written."""

    FLAG = "--yes"
    ONE = "--name NAME"
    SEVERAL = "--scalar A=… --scalar B=…"
    NAMES = "--secrets a,b"
    GROUPS = "--zip a,b --zip c,d"


@dataclass(frozen=True)
class Option:
    """An option: its sentence, how it is written, which programs take it, and where Hydra has it, as `setting`.

    `choices` are its values in words; those of a text are the only ones. `elsewhere`: what those write that do not take
    it.
    """

    name: str
    type: Any
    default: Any
    help: str
    form: Form
    metavar: str | None
    takes: frozenset[Kind]
    part: Part
    setting: str
    choices: str
    elsewhere: Mapping[Kind, str]

    @property
    def flag(self) -> str:
        """The option as it is written: `--output-root`."""
        return flag_of(self.name)

    def hydra_name(self, kind: Kind) -> str:
        """The setting of this option in a command of Hydra's; empty if it has none."""
        match self.part:
            case Part.NOWHERE:
                return ""
            case Part.SWEEP if kind is Kind.JOB:
                return self.setting
            case Part.LAUNCHER:
                return f"hydra.launcher.{self.setting}"
            case Part.JOB:
                return f"hydra.job.{self.setting}"
        return setting_of(self.setting)


FLAGS_VARIABLE = "RUNMANAGER_FLAGS"
"""Set for the process of an application whose options were given as flags, so that its messages name those."""


def setting_of(name: str) -> str:
    """Return an option's name as a setting of the sweeper: `hydra.sweeper.output_root`."""
    return f"hydra.sweeper.{name}"


def flag_of(name: str) -> str:
    """Return an option's name as it is written: `--output-root`."""
    return f"--{name.replace('_', '-')}"


def _option(default: Any, text: str, metavar: str | None = None, form: Form | None = None, **others: Any) -> Any:
    metadata: Any = {"help": text, "metavar": metavar, "form": form or (Form.FLAG if default is False else Form.ONE)}
    metadata |= {"takes": _ALL, "part": Part.SWEEPER, "setting": "", "choices": "", "elsewhere": {}} | others
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


_SWEEP: Any = {"part": Part.SWEEP}
_LAUNCHER: Any = {"part": Part.LAUNCHER}
_HERE: Any = {"part": Part.NOWHERE}
_OF_PROGRAMS: Any = {"takes": frozenset({Kind.SCRIPT, Kind.APPLICATION})}
_OF_SCRIPTS: Any = {"takes": frozenset({Kind.SCRIPT})} | _HERE


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """What a command asks of a sweep, apart from its program and settings. See `runmanager sweep --help`."""

    name: str | None = _option(None, "The sweep's folder; only a named sweep can be resumed.", "NAME", **_SWEEP)
    output_root: str = _option("outputs", "Where sweeps are stored.", "FOLDER", **_SWEEP)
    resume: str = _option(
        "auto",
        "`auto` runs what is missing, `never` runs every cell again, `must` requires stored runs.",
        choices="auto, never, must",
        **_SWEEP,
    )
    rerun_changed: bool = _option(False, "Run finished cells again whose code or versions have changed.", **_SWEEP)
    restore: bool = _option(False, "Run cells again that `runmanager rm` removed.")
    metric: str | None = _option(None, "The metric by which cells are ranked.", "NAME")
    better: str | None = _option(
        None,
        "Whether larger or smaller values of the metric are better.",
        "max|min",
        choices="max, min, larger, smaller",
    )
    scalar: list[str] = _option(
        [],
        "A number that the script prints: one group is the value, two are a fraction. Repeatable.",
        "NAME=REGEX",
        Form.SEVERAL,
        **_OF_SCRIPTS,
        elsewhere={
            Kind.JOB: "it logs its metrics itself",
            Kind.APPLICATION: "its task returns its metrics or logs them with runmanager.log(NAME=value)",
        },
    )
    seed_name: list[str] = _option(
        [],
        "A further setting, or a glob, that is a seed: cells that differ in it alone are repetitions. Repeatable.",
        "NAME",
        Form.SEVERAL,
    )
    unsigned: list[str] = _option(
        [],
        "A setting, or a glob, that does not change what is computed. Repeatable.",
        "NAME",
        Form.SEVERAL,
        **_OF_PROGRAMS,
        elsewhere={Kind.JOB: "it knows which of its settings change what is computed"},
    )
    device: str | None = _option(
        None,
        "The setting that names the device. Default: device.",
        "NAME",
        **_OF_PROGRAMS,
        elsewhere={Kind.JOB: "write device={value}"},
    )
    resume_with: str | None = _option(
        None,
        "A setting from the second attempt on, where the file exists, or the newest of a glob; {run_dir}: its folder.",
        "NAME=FILE",
        **_OF_PROGRAMS,
        elsewhere={Kind.JOB: "it resumes from its own checkpoints"},
    )
    chdir: bool = _option(
        False,
        "Let each cell work in its run folder, so that cells do not write the same files.",
        **_OF_PROGRAMS,
        part=Part.JOB,
        elsewhere={Kind.JOB: "it writes into its run folders alone"},
    )
    secrets: list[str] = _option(
        [], "Further settings whose text is masked in what is written, as pin,pat.", "NAMES", Form.NAMES
    )
    zip: Any = _option(None, "Axes that advance together, such as lr,batch_size. Repeatable.", "NAMES", Form.GROUPS)
    points: str | None = _option(None, "A YAML, JSON or CSV file of explicit points, combined with the axes.", "FILE")
    exclude: str | None = _option(None, "Leave out the cells that meet it: 'lr>0.1 and batch_size<100'.", "CONDITION")
    order: str | None = _option(
        None, "How cells start within a block of one seed. Default: random, and stored.", choices="grid, random"
    )
    until_decided: bool = _option(
        False,
        "Run the first two seeds of all cells, and further ones only where the question is still open: which cell is "
        "the best, or what differs in speed.",
    )
    max_runs: int | None = _option(None, "Stop deciding after this many runs.", "N")
    search: str | None = _option(
        None,
        "Search intervals and lists of values in place of a grid; Optuna decides what is next.",
        choices="tpe, random",
    )
    trials: int | None = _option(
        None, "Trials of a search in the whole sweep: settings with all their seeds, earlier cells included.", "N"
    )
    max_seconds: float | None = _option(None, "Begin no trial of a search after this time.", "SECONDS")
    prune: str | None = _option(
        None,
        "End runs of a search early whose metric is unpromising, by Optuna's pruner; they rank behind all others.",
        choices="median, hyperband",
    )
    save: str | None = _option(
        None,
        "Write the grid to conf/experiment/NAME.yaml, and run nothing.",
        "NAME",
        takes=frozenset({Kind.JOB}),
        elsewhere=dict.fromkeys(Kind, "it writes a preset of the built-in job"),
    )
    launcher: str = _option("local", "Where the cells run.", choices="local, slurm, ray", **_HERE)
    launcher_option: list[str] = _option(
        [], "A setting that only this launcher has, such as threads=2. Repeatable.", "NAME=VALUE", Form.SEVERAL, **_HERE
    )
    slurm: list[str] = _option(
        [], "The same for `--launcher slurm`, such as time=120. Repeatable.", "NAME=VALUE", Form.SEVERAL, **_HERE
    )
    workers: int = _option(1, "Cells at a time.", "N", **_LAUNCHER)
    gpus: list[str] | None = _option(
        None, "The GPUs to use, such as 0,1. Default: all.", "IDS", Form.NAMES, **_LAUNCHER
    )
    gpus_per_run: int | None = _option(None, "GPUs of a cell. Default: one, where there is one.", "N", **_LAUNCHER)
    processes: str | None = _option(
        None,
        "Ranks of a cell, which torchrun starts; several numbers, such as 1,2, are an axis of a script.",
        "N",
        **_OF_PROGRAMS,
        **_LAUNCHER,
        setting="processes_per_run",
        elsewhere={Kind.JOB: "it trains in one process"},
    )
    timeout: float | None = _option(None, "Kill a cell after this time.", "SECONDS", **_LAUNCHER)
    stall_timeout: float | None = _option(
        None, "Kill a cell that has made no step for this time.", "SECONDS", **_LAUNCHER
    )
    retries: int = _option(0, "Further tries of a cell that was killed, timed out or vanished.", "N", **_LAUNCHER)
    python: str | None = _option(
        None,
        "The interpreter of the program. Default: the current one.",
        "PATH",
        **_OF_PROGRAMS,
        **_HERE,
        elsewhere={Kind.JOB: "start the command with it: PATH -m runmanager sweep …"},
    )
    argument: str | None = _option(
        None, "The form of a setting as an argument, such as '{name}={value}'. Default: a flag.", "FORM", **_OF_SCRIPTS
    )
    unchecked: bool = _option(False, "Do not check the settings against the script's own help.", **_OF_SCRIPTS)
    notify: str | None = _option(None, "Where apprise sends a message when the sweep ends.", "URL")
    dry_run: bool = _option(False, "Show the plan, and run nothing.")
    quiet: bool = _option(False, "Show only what went wrong.")
    yes: bool = _option(False, "Do not ask before a large sweep.")
    debug: bool = _option(False, "Add the traceback of an error.", **_HERE)


def _described(each: "dataclasses.Field[Any]") -> Option:
    default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
    facts = dict(each.metadata) | {"setting": each.metadata["setting"] or each.name}
    return Option(name=each.name, type=each.type, default=default, **facts)


_OPTIONS = {each.name: _described(each) for each in fields(SweepRequest)}


def options() -> Mapping[str, Option]:
    """Return every option by its name."""
    return MappingProxyType(_OPTIONS)


def node_class(
    kind: Kind, own: Sequence[tuple[str, Any, Any]], *, module: str, name: str, parts: Sequence[Part]
) -> type[Any]:
    """Return the dataclass of a sweeper's settings in Hydra: its `own` fields, then the options of `parts`.

    `own`: names, types and defaults, or dataclass fields. The class must be stored in `module` as `name`, as Hydra
    pickles it by that name.
    """
    taken = [each for each in fields(SweepRequest) if _OPTIONS[each.name].part in parts]
    shared = [(each.name, each.type, _field(each)) for each in taken if kind in _OPTIONS[each.name].takes]
    made = dataclasses.make_dataclass(name, [*own, *shared])
    made.__module__ = module
    return made


def read_node(settings: Mapping[str, Any]) -> SweepRequest:
    """Return the request of a sweeper's settings as Hydra passes them; others are left out."""
    known = {name: value for name, value in settings.items() if name in _OPTIONS}
    # OmegaConf's lists print, compare and pickle like none of Python's.
    return SweepRequest(**{name: _plain(value) for name, value in known.items()})


def _plain(value: Any) -> Any:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return [_plain(each) for each in value] if is_list else value


def _field(each: "dataclasses.Field[Any]") -> Any:
    metadata = {"help": each.metadata["help"]}
    if each.metadata["choices"]:
        metadata["allowed"] = each.metadata["choices"]
    if each.default_factory is not dataclasses.MISSING:
        return field(default_factory=each.default_factory, metadata=metadata)
    return field(default=each.default, metadata=metadata)
