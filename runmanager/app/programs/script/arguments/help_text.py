"""The flags of a script, read from its help."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from runmanager.app.programs.script.arguments.required_flags import required_flags
from runmanager.validation import did_you_mean

__all__ = ["Arity", "HelpFlags", "read_help"]

_USAGE = re.compile(r"^\W*(usage:|synopsis)", re.IGNORECASE | re.MULTILINE)
_FLAG = re.compile(r"(?<![\w-])--(?P<no>\[no-?\])?(?P<name>[A-Za-z][\w.-]*)")
_SHORT_FLAGS = re.compile(r"^(?:-\w\b[\s,]*)+")  # `--kind, -k {a,b}`, as argparse has it from Python 3.13 on
_DEFINITION = re.compile(r"^[ \t│|*]*(?P<flags>-.*)$", re.MULTILINE)  # typer marks required ones by an asterisk
_ARGPARSE = ("argparse", "transformers")
_LIST_ALL = (*_ARGPARSE, "click", "typer")  # each option in the usage, or on an indented line
_EMPTY_LINE = re.compile(r"\n[ \t]*\n")
_COLUMNS = re.compile(r"[ \t│|]{2,}")
_SEPARATORS = " \t,/|"
_MAX_USAGE_LINES = 200
_BY_BAR = ("click", "typer", "absl")  # `[a|b]` or `<a|b>`; the others list choices as argparse does, as `{a,b}`
_CHOICES_BY_BAR = re.compile(r":? ?[<\[](?P<all>[^<>\[\]]+\|[^<>\[\]]+)[>\]](?=$|[\s:,\]])")
_CHOICES = re.compile(r"\[?\{(?P<all>[^{}]+)\}(?=$|[\s:,\]])")
# Not a text that the script takes: what it makes of one, such as a member of an enum; a format of dates; or a word of a
# help text written by hand, as in `[auto|N]` and `{adam, sgd, ...}`.
_NO_TEXT = re.compile(
    r"True|False|None|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+|.*[%<>'\"()].*|\s.*|.*\s|.*(\.\.\.|…).*|N|"
    r"(?i:int(eger)?|float|num(ber)?|str(ing)?|text|bool(ean)?|path|file|dir)",
    re.DOTALL,
)


class Arity(Enum):
    """Whether a flag takes a value."""

    NONE = "no value"
    OPTIONAL = "an optional value"
    REQUIRED = "a value"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class HelpFlags:
    """The flags that a script's help shows, without their dashes. `library` reads the script's arguments.

    `required` are those without which the script refuses to run, each by all its names.
    """

    library: str
    arities: Mapping[str, Arity]
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    accepts_any: bool = False
    required: Sequence[Sequence[str]] = ()

    def knows(self, name: str) -> bool:
        """Whether the script accepts `--NAME`."""
        if self.accepts_any or name in self.arities or self._other_spelling(name) is not None:
            return True
        # jsonargparse takes the arguments of a class or the keys of a mapping below a flag, and shows the flag alone.
        return self.library == "jsonargparse" and any(parent in self.arities for parent in _parents(name))

    def arity(self, name: str) -> Arity:
        known = name if name in self.arities else self._other_spelling(name)
        return self.arities.get(known or "", Arity.UNKNOWN)

    def choices_without(self, name: str, value: str) -> Sequence[str]:
        """The choices of a flag where this value is none of them; empty where it is, or may be, or has no choices."""
        choices = self.choices.get(name) or self.choices.get(self._other_spelling(name) or "", ())
        return () if any(_may_be_equal(value, choice) for choice in choices) else choices

    def negative(self, name: str) -> str | None:
        """The flag, with its dashes, that means `NAME=false`; None if the help shows none."""
        if self.library == "fire":  # shows none, but takes `--noNAME` for every flag
            return f"--no{name}"
        group, dot, last = name.rpartition(".")
        forms = [f"{no}{name}" for no in ("no-", "no_", "no")] + [f"{group}{dot}{no}{last}" for no in ("no-", "no_")]
        return next((f"--{form}" for form in forms if form in self.arities), None)

    def nearest(self, name: str) -> str:
        """A hint at the flag that was meant, or the list of all."""
        names = sorted(self.arities.keys() - {"help"})
        close = did_you_mean(f"--{name}", [f"--{each}" for each in names], max_names=1, cutoff=0.4)
        return close or f"the script's help shows {', '.join(f'--{each}' for each in names) or 'none'}"

    def _other_spelling(self, name: str) -> str | None:
        """The flag that the library takes for this one: tyro and fire make no difference between `-` and `_`."""
        if self.library not in ("tyro", "fire"):
            return None
        plain = name.replace("-", "_")
        return next((each for each in self.arities if each.replace("-", "_") == plain), None)


def read_help(text: str, library: str) -> HelpFlags | None:
    """Read the output of a help call; None if it prints no usage."""
    usage = _USAGE.search(text)
    if usage is None:
        return None
    arities = {} if library in _LIST_ALL else {name: Arity.UNKNOWN for _, name in _mentions(text)}
    arities.update(_from_usage(text[usage.end() :]))
    choices = {}
    for line in _DEFINITION.finditer(text):
        if library in _LIST_ALL and line[0].startswith("-"):
            continue  # a sentence that begins with a flag
        defined, among = _from_definition(line["flags"], library)
        arities.update(defined)
        choices.update(dict.fromkeys(defined, among) if among else {})
    if library == "fire":
        arities.update(_fire_positionals(text))
    accepts_any = "Additional flags are accepted" in text
    required = required_flags(_first_paragraph(text[usage.end() :]), text) if library in _ARGPARSE else ()
    return HelpFlags(library, arities, choices, accepts_any, required)


def _mentions(text: str) -> Iterator[tuple[re.Match[str], str]]:
    for found in _FLAG.finditer(text):
        name = found["name"].rstrip(".-")
        yield found, name
        if found["no"]:
            yield found, f"{found['no'].strip('[]')}{name}"


def _from_usage(text: str) -> dict[str, Arity]:
    """The flags of a usage like `[--lr LR] [--fast] [--amp [AMP]]`, up to the first empty line."""
    paragraph = " ".join(_first_paragraph(text).splitlines()[:_MAX_USAGE_LINES])
    arities = {}
    for found, name in _mentions(paragraph):
        rest = paragraph[found.end() :].lstrip()
        if not rest or rest[0] in "]|-" or rest.startswith(("[-", "...")):
            arities[name] = Arity.NONE
        else:
            arities[name] = Arity.OPTIONAL if rest[0] == "[" else Arity.REQUIRED
    return arities


def _first_paragraph(text: str) -> str:
    return _EMPTY_LINE.split(text, maxsplit=1)[0]


def _from_definition(line: str, library: str) -> tuple[dict[str, Arity], Sequence[str]]:
    """The flags that a line of the help defines, as `-b N, --batch-size N  images`; all of them take the same.

    Also the texts that they take, as in `--kind {small,large}`; empty where the help does not list them.
    """
    columns = _COLUMNS.split(line)
    flag_columns = [*itertools.takewhile(lambda column: column.startswith("-"), columns)]
    following = columns[len(flag_columns)] if len(columns) > len(flag_columns) else ""
    if library == "typer" and re.fullmatch(r"<.*>|[A-Z_]+", following):  # its metavars have a column of their own
        flag_columns.append(following)
    definition = " ".join(flag_columns)
    flags = list(_mentions(definition))
    if not flags:
        return {}, ()
    ends = [*(found.start() for found, _ in flags[1:]), len(definition)]
    rests = [definition[found.end() : end].strip(_SEPARATORS) for (found, _), end in zip(flags, ends, strict=True)]
    rests = [_SHORT_FLAGS.sub("", rest) for rest in rests]
    metavar = next((rest for rest in rests if rest and not rest.startswith("-")), "")
    choices = _choices(metavar, library)
    arity = Arity.REQUIRED if choices and metavar.startswith("[") and "|" in metavar else _arity(metavar, library)
    return {name: Arity.NONE if found["no"] else arity for found, name in flags}, choices


def _choices(metavar: str, library: str) -> Sequence[str]:
    expression, separator = (_CHOICES_BY_BAR, "|") if library in _BY_BAR else (_CHOICES, ",")
    found = expression.match(metavar)
    if found is None:
        return ()
    choices = found["all"].split(separator)
    return () if any(map(_NO_TEXT.fullmatch, choices)) else choices


def _arity(metavar: str, library: str) -> Arity:
    if not metavar or (library == "typer" and metavar == "<bool>"):  # typer's name for a flag without a value
        return Arity.NONE
    return Arity.OPTIONAL if metavar.startswith("[") else Arity.REQUIRED


def _fire_positionals(text: str) -> dict[str, Arity]:
    """The arguments that fire shows by position alone, and takes as flags too."""
    if "flags syntax for POSITIONAL ARGUMENTS" not in text:
        return {}
    section = text.partition("\nPOSITIONAL ARGUMENTS\n")[2].partition("\n\n")[0]
    return {name.lower(): Arity.REQUIRED for name in re.findall(r"^ {4}([A-Z]\w*)", section, re.MULTILINE)}


def _may_be_equal(value: str, choice: str) -> bool:
    """Whether a script may take both for the same: it may ignore case, or read a number."""
    if value.casefold() == choice.casefold():
        return True
    try:
        return float(value) == float(choice)
    except ValueError:
        return False


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
