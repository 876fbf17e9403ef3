"""The words of a command that runs cells: its program, its options, its settings, and the arguments after `--`.

One grammar for every program: a word NAME=VALUE is a setting, one that begins with a dash an option of ours, wherever
it stands before `--`.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from runmanager.app.request.sweep_request import Form, Kind, Option, Part, SweepRequest, flag_of, options
from runmanager.launching.launchers import LAUNCHERS, LauncherChoice
from runmanager.text import in_backticks, shell_join
from runmanager.validation import did_you_mean, fault, nearest_names, suggestion

RAW_SETTINGS = ("hydra.sweeper.exclude=", "hydra.sweeper.notify=", "hydra.sweeper.resume_with=")
"""Settings whose values Hydra could not parse as they are typed."""

_INTERVAL = re.compile(r"(?P<name>[^=]+=)(?P<log>log)?uniform\((?P<ends>[^()]*)\)")
_PLAIN = re.compile(r"[\w./:@-]+", re.ASCII)
_OTHER_TYPES = re.compile(r"null|true|false|[+-]?(inf|nan|[\d_.]+(e[+-]?[\d_]+)?)", re.IGNORECASE | re.ASCII)


def format_override(name: str, value: Any) -> str:
    """Format `NAME=VALUE` for None, a bool, a number, a string, or lists and mappings of these."""
    return f"{name}={_format_value(value)}"


def _format_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(_format_value, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_format_value(item)}' for key, item in value.items())}}}"
    is_plain = _PLAIN.fullmatch(value) and not _OTHER_TYPES.fullmatch(value)
    return value if is_plain else quote_text(str(value))


def quote_text(text: str) -> str:
    """Quote `text` as a value for Hydra."""
    # To Hydra a backslash is literal except before a quote.
    escaped = re.sub(r"(\\+)\Z", r"\1\1", re.sub(r'(\\*)"', r'\1\1\\"', text))
    return f'"{escaped}"'  # double quotes: a shell's single quotes go around them


def quote_raw(word: str) -> str:
    """Quote the value of one of `RAW_SETTINGS`, unless it is quoted; any other word stays as it is.

    A shell takes the quotes of `hydra.sweeper.exclude='lr>0.1'`, and Hydra parses neither `>` nor a second `=`.
    """
    name, given, value = word.partition("=")
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    if not word.startswith(RAW_SETTINGS) or value in ("", "null") or value.startswith("${") or is_quoted:
        return word
    return f"{name}{given}{quote_text(value)}"


def in_hydras_syntax(word: str) -> str:
    """Return a setting with `uniform(a,b)` and `loguniform(a,b)` written as Hydra's intervals."""
    if (found := _INTERVAL.fullmatch(word)) is None:
        return word
    interval = f"interval({found['ends']})"
    return f"{found['name']}{f'tag(log,{interval})' if found['log'] else interval}"


MULTIRUN = ("-m", "--multirun")
"""What asks for a grid: it adds nothing to `runmanager sweep`."""
RERUN = "--experimental-rerun"
"""Hydra's option that no command of ours takes."""
HYDRA_OPTIONS = (
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
    *("--info", "-i", RERUN),
)
"""Hydra's own options with a value."""
_ASKING = ("--help", "-h", "--hydra-help", "--version", "--shell-completion", "-sc")
HYDRA_FLAGS = (*_ASKING, "--resolve", "--run", "-r", *MULTIRUN)
"""Hydra's own options without one."""
_INFORMATION = (*_ASKING, "--cfg", "-c", "--info", "-i")
_ELSEWHERE = {
    Kind.JOB: "it goes with a script, as in `runmanager sweep train.py {flag} …`",
    Kind.APPLICATION: "the settings of a Hydra application are its configuration",
}


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
    `settings` are all words of the program: NAME=VALUE, and options of Hydra. `unknown` are options that neither
    runmanager nor Hydra has, each with the value that seems to belong to it. `fixed` stands after `--`, and `words` is
    the whole command. `faults` are those that it has with any program.
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
        fixed = "" if kind is Kind.JOB else ", a fixed argument stands after `--`"
        return f"{line}; a setting is written {name}={value or '…'}{fixed}."

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
        for flag, ours in () if kind is Kind.SCRIPT else self._as_settings(kind):
            typed = self._typed.get(ours.partition("=")[0], ours)
            if _unquoted(typed.lstrip("+")) != _unquoted(ours):
                yield f"`{flag}` must be given once, got it and `{typed}`; leave out one of the two."

    @cached_property
    def _typed(self) -> dict[str, str]:
        """The settings among its words, by their names."""
        return {word.lstrip("+").partition("=")[0]: word for word in self.settings if not word.startswith("-")}

    @property
    def _launcher(self) -> LauncherChoice:
        return LAUNCHERS.get(self.request.launcher, LAUNCHERS["local"])  # an unknown one is a fault already

    def _launcher_setting(self, option: Option) -> str:
        """The name of an option among the settings of the launcher, which may lack it."""
        return self._launcher.takes.get(option.name, option.setting)

    def _launcher_faults(self) -> Iterator[str]:
        name, instead = self.request.launcher, self._launcher.instead
        settings = {each.name for each in fields(self._launcher.options)}
        own = {word.partition("=")[0]: word for _, word in self.launcher_settings}
        if name != "slurm":
            yield from (fault("--slurm", "be given with `--launcher slurm`", each) for each in self.request.slurm[:1])
        for each in options().values():
            if each.part is not Part.LAUNCHER or each.name not in self.given:
                continue
            if (setting := self._launcher_setting(each)) not in settings:
                yield fault(each.flag, f"be left out with `--launcher {name}`", "it", instead.get(each.name, ""))
            elif setting in own and own[setting] != f"{setting}={getattr(self.request, each.name)}":
                yield f"`{each.flag}` must be given once, got it and `{own[setting]}`; leave out one of the two."

    @property
    def launcher_settings(self) -> list[tuple[str, str]]:
        """The settings NAME=VALUE that only its launcher has, each after the option that gives it."""
        given = {"--launcher-option": self.request.launcher_option, "--slurm": self.request.slurm}
        return [(option, word) for option, words in given.items() for word in words]

    def hydra_words(self, kind: Kind) -> list[str]:
        """Return the options as settings of Hydra, without those that a word of the command gives already."""
        return [word for _, word in self._as_settings(kind) if word.partition("=")[0] not in self._typed]

    def _as_settings(self, kind: Kind) -> Iterator[tuple[str, str]]:
        """The options that this kind of program takes, each with the setting of Hydra that says the same."""
        if "launcher" in self.given:
            name = self.request.launcher if kind is Kind.JOB else self._launcher.hydra_name
            yield "--launcher", f"hydra/launcher={name}"
        for each in options().values():
            name, value = each.hydra_name(kind), getattr(self.request, each.name)
            if each.name not in self.given or _lacks(each.name, kind) or not name:
                continue
            if each.part is Part.LAUNCHER:
                name = f"hydra.launcher.{self._launcher_setting(each)}"
            # Ranks are a number to Hydra, which sweeps over no settings of its own.
            is_number = each.name == "processes" and value.isdecimal()
            yield each.flag, format_override(name, int(value) if is_number else value)
        for _, word in self.launcher_settings:
            yield "--launcher-option", f"hydra.launcher.{word}"


def _unquoted(word: str) -> str:
    return word.replace('"', "").replace("'", "")


def _lacks(name: str, kind: Kind) -> bool:
    return kind not in options()[name].takes


def _not_taken(each: Option, kind: Kind, typed: str) -> str:
    value = typed.partition("=")[2] or typed.partition(" ")[2] or "…"
    way_out = each.elsewhere.get(kind, _ELSEWHERE.get(kind, "")).format(flag=each.flag, value=value)
    return fault(each.flag, f"be left out for {kind}", "it", way_out)


def choice_faults(each: Option, value: Any, key: str) -> list[str]:
    """Return the fault of a value that is none of an option's choices; `key` is how the user names the option."""
    choices = each.choices.split(", ") if each.choices else []
    if value is None or not choices or value in choices:
        return []
    return [fault(key, f"be one of {each.choices}", value, did_you_mean(str(value), choices, cutoff=0.6))]


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
