"""The words of a command that runs cells: its program, its options, its settings, and the arguments after `--`.

One grammar for every program: a word NAME=VALUE is a setting, one that begins with a dash an option of ours, wherever
it stands before `--`.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runmanager.app.request.override_quoting import format_override
from runmanager.app.request.sweep_request import Form, Kind, Option, SweepRequest, flag_of, options
from runmanager.text import in_backticks, shell_join
from runmanager.validation import did_you_mean, fault, nearest_names, suggestion

__all__ = [
    "HYDRA_FLAGS",
    "HYDRA_OPTIONS",
    "MULTIRUN",
    "RERUN",
    "Command",
    "after_separator",
    "option_words",
    "take_value",
    "unknown_names",
]

HYDRA_OPTIONS = (
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
    *("--info", "-i"),
)
"""Hydra's own options with a value."""
HYDRA_FLAGS = (
    *("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m"),
    *("--shell-completion", "-sc"),
)
"""Hydra's own options without one."""
_INFORMATION = (
    *("--help", "-h", "--hydra-help", "--version", "--cfg", "-c", "--info", "-i"),
    *("--shell-completion", "-sc"),
)
MULTIRUN = ("-m", "--multirun")
"""What asks for a grid: it adds nothing to `runmanager sweep`."""
RERUN = "--experimental-rerun"
"""Hydra's option that no command of ours takes."""
_ELSEWHERE = {
    Kind.JOB: "it goes with a script, as in `runmanager sweep train.py {} …`",
    Kind.APPLICATION: "the settings of a Hydra application are its configuration",
}
# What Slurm's launcher calls by another name.
_INSTEAD = {"gpus": "gpus_per_node", "retries": "resubmissions", "workers": "array_parallelism"}


def after_separator(fixed: Sequence[str]) -> tuple[str, ...]:
    """Return the end of a command with these arguments of its script: `--` and the arguments, or nothing."""
    return ("--", *fixed) if fixed else ()


def take_value(word: str, following: deque[str]) -> str:
    """Return the value of an option: what follows `=`, or the next word, which is taken; empty if there is none."""
    _, has_value, value = word.partition("=")
    return value if has_value or not following else following.popleft()


@dataclass(frozen=True)
class Command:
    """A parsed command.

    `given` has the options that it gives, by name, each as it was typed last, and `after` those that stand behind the
    program. `program` is a path that ends in `.py`, or a module's name; without one, it is the built-in job.
    `settings` are all words of the program: NAME=VALUE, and options of Hydra. `unknown` are options of nobody, each
    with the value that seems to belong to it. `fixed` stands after `--`, and `words` is the whole command. `faults`
    are those that it has with any program.
    """

    request: SweepRequest
    given: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    program: str | None = None
    is_module: bool = False
    settings: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    fixed: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    def refusals(
        self, kind: Kind, *, flags_of_program: Callable[[], Collection[str]] = tuple, names: Sequence[str] = ()
    ) -> list[str]:
        """Return every fault of the command for this kind of program.

        `flags_of_program` is called only where an option stands behind the program, which might mean the program's own.
        `names` are those of settings, if they are known.
        """
        return [
            *self.faults,
            *(_not_taken(options()[name], kind, word) for name, word in self.given.items() if _lacks(name, kind)),
            *self._clashes(kind, flags_of_program),
            *(self._unknown_fault(word, value, kind, names) for word, value in self._unknown_to(kind)),
            *(self._form_faults() if kind is not Kind.SCRIPT else ()),
            *self._disagreements(kind),
            *self._launcher_faults(),
        ]

    def _unknown_to(self, kind: Kind) -> Iterator[tuple[str, str]]:
        yield from self.unknown
        if kind is Kind.SCRIPT:
            yield from ((word, "") for word in self.settings if word.startswith("-") and word not in MULTIRUN)

    def _clashes(self, kind: Kind, flags_of_program: Callable[[], Collection[str]]) -> Iterator[str]:
        after = [name for name in self.after if not _lacks(name, kind)]
        if kind is not Kind.SCRIPT or not after:
            return
        theirs = flags_of_program()
        for name in after:
            flag, typed = flag_of(name), self.given[name]
            if flag in theirs:
                option, program = shell_join(typed.split(" ", 1)), shell_join([str(self.program)])
                ours, its = in_backticks(f"{option} {program} …"), in_backticks(f"{program} … -- {option}")
                yield (
                    f"`{flag}` must say whose it is, as {self.program} has an option of this name too, got it after "
                    f"the program; write {ours} for that of runmanager, {its} for its own."
                )

    def _unknown_fault(self, word: str, value: str, kind: Kind, names: Sequence[str]) -> str:
        option = word.partition("=")[0]
        flags = [flag_of(name) for name in options() if not _lacks(name, kind)]
        line = f"`{option}` must be an option of runmanager, got an unknown one"
        if meant := did_you_mean(option, flags, max_names=1, cutoff=0.8):
            return f"{line}; {meant}"
        name = option.lstrip("-")
        if kind is Kind.JOB:
            name = name.replace("-", "_")
            name = next(iter(nearest_names(name, names, max_names=1, cutoff=0.7)), name)
        setting = in_backticks(f"{name}={value or '…'}")
        fixed = "" if kind is Kind.JOB else ", a fixed argument stands after `--`"
        return f"{line}; a setting is written {setting}{fixed}."

    def _form_faults(self) -> Iterator[str]:
        """Faults of words that are neither NAME=VALUE nor options of Hydra."""
        words = deque(self.settings)
        while words:
            word = words.popleft()
            if word.partition("=")[0] in HYDRA_OPTIONS:
                take_value(word, words)
            elif "=" not in word and word.endswith(".py"):
                example = in_backticks(shell_join(["runmanager", "sweep", word, "lr=0.1,0.01"]))
                yield f"`{word}` must come before its settings, as in {example}; got it after them."
            elif "=" not in word and not word.startswith(("~", "-")):
                way_out = f"; write {word}=…" if word.replace(".", "_").isidentifier() else ""
                yield f"`{word}` must be NAME=VALUE, got no value{way_out}."

    @property
    def only_shows(self) -> bool:
        """Whether it asks Hydra for information, such as `--cfg job`, and runs nothing."""
        return any(word.partition("=")[0] in _INFORMATION for word in self.settings)

    def _disagreements(self, kind: Kind) -> Iterator[str]:
        """Options that a word of the command gives another value, as a setting of Hydra."""
        if kind is Kind.SCRIPT:
            return
        typed = {word.lstrip("+").partition("=")[0]: word for word in self.settings if not word.startswith("-")}
        for ours in self.hydra_words(kind, keeps_equal=True):
            name = ours.partition("=")[0]
            other = typed.get(name, ours).lstrip("+")
            if _unquoted(other) != _unquoted(ours):
                flag = next((flag_of(each) for each in self.given if _hydra_name(each, kind) == name), name)
                yield f"`{flag}` must be given once, got it and `{typed[name]}`; leave out one of the two."

    def _launcher_faults(self) -> list[str]:
        if self.request.launcher != "slurm":
            return [fault("--slurm", "be given with `--launcher slurm`", each) for each in self.request.slurm[:1]]
        return [
            f"`{flag_of(name)}` must be left out with `--launcher slurm`, got it; use --slurm {instead}=…."
            for name, instead in _INSTEAD.items()
            if name in self.given
        ]

    @property
    def launcher_settings(self) -> list[str]:
        """The settings NAME=VALUE that only its launcher has."""
        return [*self.request.launcher_option, *self.request.slurm]

    def hydra_words(self, kind: Kind, *, keeps_equal: bool = False) -> list[str]:
        """Return the options as settings of Hydra, without those that a word of the command gives already."""
        words = [
            format_override(name, _hydra_value(each, getattr(self.request, each.name)))
            for each in options().values()
            if each.name in self.given and not _lacks(each.name, kind) and (name := self._hydra_name(each, kind))
        ]
        if "launcher" in self.given:
            slurm = self.request.launcher == "slurm"
            word = {Kind.JOB: ("local", "slurm"), Kind.APPLICATION: ("runmanager", "runmanager_slurm")}[kind][slurm]
            words.insert(0, f"hydra/launcher={word}")
        words += [f"hydra.launcher.{word}" for word in self.launcher_settings]
        if keeps_equal:
            return words
        typed = {word.lstrip("+").partition("=")[0] for word in self.settings if "=" in word}
        return [word for word in words if word.partition("=")[0] not in typed]

    def _hydra_name(self, each: Option, kind: Kind) -> str:
        if each.name == "gpus_per_run" and self.request.launcher == "slurm":
            return "hydra.launcher.gpus_per_node"
        return each.hydra_name(kind)


def _hydra_name(name: str, kind: Kind) -> str:
    return "hydra/launcher" if name == "launcher" else options()[name].hydra_name(kind)


def _unquoted(word: str) -> str:
    return word.replace('"', "").replace("'", "")


def _hydra_value(each: Option, value: Any) -> Any:
    # Ranks are a number to Hydra, which sweeps over no settings of its own.
    return int(value) if each.name == "processes" and value.isdecimal() else value


def _lacks(name: str, kind: Kind) -> bool:
    return kind not in options()[name].takes


def _not_taken(each: Option, kind: Kind, typed: str) -> str:
    value = typed.partition("=")[2] or (typed.split(" ", 1)[1] if " " in typed else "…")
    way_out = each.elsewhere.get(kind, _ELSEWHERE.get(kind, "")).format(each.flag)
    if each.name == "device":
        way_out = f"write device={value}"
    return fault(each.flag, f"be left out for {kind}", "it", way_out)


def option_words(request: SweepRequest, names: Collection[str]) -> list[str]:
    """Return the options of these names as words of a command, without those at their defaults."""
    words: list[str] = []
    for each in options().values():
        value = getattr(request, each.name)
        if each.name not in names or value == each.default:
            continue
        match each.form:
            case Form.FLAG:
                words.append(each.flag)
            case Form.SEVERAL:
                words += [word for item in value for word in (each.flag, item)]
            case Form.NAMES:
                words += [each.flag, ",".join(value)]
            case Form.GROUPS:
                words += [word for group in value for word in (each.flag, ",".join(group))]
            case Form.ONE:
                words += [each.flag, str(value)]
    return words


def unknown_names(names: Iterable[str], part: str, known: Collection[str]) -> list[str]:
    """Return a fault for each of these names of `hydra.PART` that is not `known`; Hydra might ignore it."""
    return [
        f"`hydra.{part}.{name}` must be a setting of Hydra, got an unknown name; {suggestion(name, known)}"
        for name in names
        if name not in known
    ]
