"""The words of a command that runs cells: its program, its options, its settings, and the arguments after `--`.

One grammar for every program: a word NAME=VALUE is a setting, one that begins with a dash an option of ours, wherever
it stands before `--`.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runmanager.app.request.override_quoting import format_override
from runmanager.app.request.sweep_request import Form, Kind, Option, SweepRequest, flag_of, options
from runmanager.text import in_backticks, shell_join, shell_quote
from runmanager.validation import did_you_mean, fault, nearest_names, suggestion

__all__ = [
    "HYDRA_FLAGS",
    "HYDRA_OPTIONS",
    "MULTIRUN",
    "Command",
    "after_separator",
    "option_words",
    "read_words",
    "split_fixed",
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
_RERUN = "--experimental-rerun"  # Hydra's, which no command of ours takes
_OF_HYDRA = (*HYDRA_OPTIONS, *HYDRA_FLAGS, _RERUN)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SEVERAL_SETTINGS = re.compile(r"[+~]*[A-Za-z_][\w./-]*=[^\s\"'=({\[]+(\s+[+~]*[A-Za-z_][\w./-]*=[^\s\"'=]+)+")
_ELSEWHERE = {
    Kind.JOB: "it goes with a script, as in `runmanager sweep train.py {} …`",
    Kind.APPLICATION: "the settings of a Hydra application are its configuration",
}
# What Slurm's launcher calls by another name.
_INSTEAD = {"gpus": "gpus_per_node", "retries": "resubmissions", "workers": "array_parallelism"}


def split_fixed(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command before the first `--`, and those after it."""
    index = words.index("--") if "--" in words else len(words)
    return list(words[:index]), list(words[index + 1 :])


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


def read_words(words: Sequence[str], *, takes_program: bool = True) -> Command:
    """Parse the words of a command; its faults are collected, not raised.

    Without `takes_program` the words are those of the built-in job.
    """
    own, fixed = split_fixed(words)
    return _Reader(own, takes_program=takes_program).command(tuple(fixed), tuple(words))


class _Reader:
    """Reads the words of a command in order."""

    def __init__(self, words: Sequence[str], *, takes_program: bool) -> None:
        self._left = deque(words)
        self._takes_program = takes_program
        self._values: dict[str, list[Any]] = {}
        self._given: dict[str, str] = {}
        self._after: dict[str, None] = {}
        self._program: str | None = None
        self._is_module = False
        self._settings: list[str] = []
        self._unknown: list[tuple[str, str]] = []
        self._faults: list[str] = []
        self._flags = {each.flag: each for each in options().values()}

    def command(self, fixed: tuple[str, ...], words: tuple[str, ...]) -> Command:
        while self._left:
            self._read(self._left.popleft())
        for name, values in self._values.items():
            each = options()[name]
            if len(values) > 1 and each.form in (Form.ONE, Form.NAMES):
                self._faults.append(f"`{each.flag}` must be given once, got it {len(values)} times; give one value.")
        if fixed and self._program is None:
            self._faults.append(f"`--` must stand behind a program, whose arguments follow, got {shell_join(fixed)}.")
        request = SweepRequest(**{name: _joined(options()[name], values) for name, values in self._values.items()})
        return Command(
            request,
            self._given,
            tuple(self._after),
            self._program,
            self._is_module,
            tuple(self._settings),
            tuple(self._unknown),
            fixed,
            words,
            tuple(self._faults),
        )

    def _read(self, word: str) -> None:
        option = word.partition("=")[0]
        if each := self._flags.get(option):
            self._read_option(each, word)
        elif word == "-m" and self._names_module():
            self._program, self._is_module = self._left.popleft(), True
        elif option in _OF_HYDRA:
            self._settings.append(word)
            if option in (*HYDRA_OPTIONS, _RERUN) and option == word and self._left:
                self._settings.append(self._left.popleft())
        elif word.startswith("-"):
            self._unknown.append((word, self._value_of_unknown(word)))
        elif self._is_program(word):
            self._program = word
        else:
            self._read_setting(word)

    def _names_module(self) -> bool:
        is_free = self._takes_program and self._program is None and not self._has_settings()
        return is_free and bool(self._left) and _MODULE.fullmatch(self._left[0]) is not None

    def _is_program(self, word: str) -> bool:
        is_free = self._takes_program and self._program is None and not self._has_settings()
        return is_free and word.endswith(".py") and "=" not in word

    def _has_settings(self) -> bool:
        return any(not word.startswith("-") for word in self._settings)

    def _value_of_unknown(self, word: str) -> str:
        if "=" in word:
            return word.partition("=")[2]
        following = self._left[0] if self._left else ""
        is_other = not following or "=" in following or following.startswith("-") or following.endswith(".py")
        return "" if is_other else self._left.popleft()

    def _read_option(self, each: Option, word: str) -> None:
        _, has_value, text = word.partition("=")
        if each.form is Form.FLAG:
            self._give(each, each.flag)
            self._values[each.name] = [True]
            if has_value:
                self._faults.append(f"`{each.flag}` must be given without a value, got `{word}`.")
            return
        if not has_value and self._left and self._left[0].partition("=")[0] not in self._flags:
            text = self._left.popleft()
            word = f"{word} {text}"
        if not text:
            self._faults.append(f"`{each.flag}` must have a value, got none.")
            return
        self._give(each, word)
        value, bad = _parsed(each, text)
        self._values.setdefault(each.name, []).append(value)
        self._faults += bad

    def _give(self, each: Option, typed: str) -> None:
        self._given[each.name] = typed
        if self._program is not None:
            self._after[each.name] = None

    def _read_setting(self, word: str) -> None:
        """Read a word that is not an option; several values or settings that a space separates are not one."""
        following = self._left[0] if self._left else ""
        if "=" in word and word.endswith(",") and following and "=" not in following and not following.startswith("-"):
            meant = word
            while meant.endswith(",") and self._left and "=" not in self._left[0]:
                word, meant = f"{word} {self._left[0]}", meant + self._left.popleft()
            self._faults.append(f"`{word}` must be one word, got spaces between values; write {shell_quote(meant)}.")
        elif _SEVERAL_SETTINGS.fullmatch(word):
            self._faults.append(f"`{word}` must be one setting, got several; write each as a word: {word}")
        else:
            self._settings.append(word)


def _parsed(each: Option, text: str) -> tuple[Any, list[str]]:
    """The value of an option from its text, and its faults."""
    if each.form in (Form.NAMES, Form.GROUPS):
        return [name.strip() for name in text.split(",")], []
    choices = each.choices.split(", ") if each.choices else []
    if choices and text not in choices:
        return each.default, [fault(each.flag, f"be one of {each.choices}", text, did_you_mean(text, choices))]
    if each.type in (int, int | None):
        is_number = re.fullmatch(r"[+-]?\d{1,18}", text) is not None
        return (int(text), []) if is_number else (each.default, [fault(each.flag, "be a whole number", text)])
    if each.type == float | None:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        return (number, []) if math.isfinite(number) else (each.default, [fault(each.flag, "be a number", text)])
    return text, []


def _joined(each: Option, values: list[Any]) -> Any:
    return values if each.form in (Form.SEVERAL, Form.GROUPS) else values[-1]


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
