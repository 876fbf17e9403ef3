"""What a script's parser knows: its options, its arguments by position, and its subcommands."""

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec

from runmanager.validation import did_you_mean

_NUMBERS = ("int", "float", "integer", "integer range", "float range")
_NOES = ("no-", "no_", "no")


def plain(name: str) -> str:
    """Return a name as Python spells it: `batch_size` for `batch-size`."""
    return name.replace("-", "_")


class Argument(msgspec.Struct, frozen=True):
    """An option with its `flags`, or an argument by position, which has none. `name` is the parser's own.

    `negatives` are the flags that turn it off. `nargs` is argparse's number of values: None for one, 0 for none. Of one
    that `repeats`, each time adds a value. `choices` are the texts that it takes, if they are known.
    """

    name: str
    flags: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    nargs: int | Literal["?", "*", "+"] | None = None
    repeats: bool = False
    choices: tuple[str, ...] = ()
    required: bool = False
    type: str = ""

    @property
    def long_flags(self) -> list[str]:
        """Its flags of two dashes; those of one where there are no others."""
        return [flag for flag in self.flags if flag.startswith("--")] or list(self.flags)

    @property
    def takes_several(self) -> bool:
        """Whether several words may follow one flag."""
        return self.nargs in ("*", "+") or (isinstance(self.nargs, int) and self.nargs > 0)

    @property
    def is_number(self) -> bool:
        return self.type.casefold() in _NUMBERS

    def choices_without(self, value: str) -> Sequence[str]:
        """Its choices where this value is none of them; empty where it is, or may be, or there are no choices."""
        return () if any(_may_be_equal(value, choice) for choice in self.choices) else self.choices


@dataclass(frozen=True)
class Found:
    """An argument of a parser, and the `flag` that a setting names; empty for one by position."""

    argument: Argument
    flag: str

    @property
    def name(self) -> str:
        """The setting's name as the script's help spells it."""
        return self.flag.lstrip("-") or self.argument.name


class ScriptParser(msgspec.Struct, frozen=True, dict=True):
    """The parser of a script or of a subcommand, with its own subcommands, the `commands`.

    One that `accepts_any` takes flags that it does not know. One that `has_keys` takes the arguments of a class, or the
    keys of a mapping, below a flag, and knows the flag alone, as that of jsonargparse.
    """

    arguments: tuple[Argument, ...]
    commands: "Mapping[str, ScriptParser]" = {}
    accepts_any: bool = False
    has_keys: bool = False

    @cached_property
    def flags(self) -> list[str]:
        """All flags, with their dashes."""
        return [flag for each in self.arguments for flag in (*each.flags, *each.negatives)]

    @property
    def positionals(self) -> list[Argument]:
        """The arguments by position, in order."""
        return [each for each in self.arguments if not each.flags]

    def find(self, name: str) -> Found | None:
        """Return the argument that a setting of this name sets.

        That is the one with this flag, spelled as it is or with the other of `-` and `_`; else the one that the parser
        calls so, if it has exactly one flag, or none. None if there is no such argument, or more than one.
        """
        if name not in self._found:  # a grid asks for the same names in each cell
            self._found[name] = self._find(name)
        return self._found[name]

    @cached_property
    def _found(self) -> dict[str, Found | None]:
        return {}

    def _find(self, name: str) -> Found | None:
        for prefix in ("--", "-"):
            if (flag := f"{prefix}{name}") in self.flags:
                return self._with_flag(flag)
        spelled = [flag for flag in self.flags if plain(flag.lstrip("-")) == plain(name)]
        if len(spelled) == 1:
            return self._with_flag(spelled[0])
        named = [each for each in self.arguments if plain(each.name) == plain(name)]
        flags = [flag for each in named for flag in each.long_flags]
        if len(named) == 1 and len(flags) < 2:
            return Found(named[0], "".join(flags))
        return None

    def _with_flag(self, flag: str) -> Found:
        argument = next(each for each in self.arguments if flag in (*each.flags, *each.negatives))
        return Found(argument if flag in argument.flags else Argument(argument.name, (flag,), nargs=0), flag)

    def knows(self, name: str) -> bool:
        """Whether the script takes a setting of this name."""
        parts = name.split(".")
        parents = [".".join(parts[:count]) for count in range(1, len(parts))] if self.has_keys else []
        taken = [name, *(each for each in parents if not self._shows_keys(each))]
        return self.accepts_any or any(self.find(each) is not None for each in taken)

    def _shows_keys(self, parent: str) -> bool:
        """Whether there is a flag for each key below a flag, as where its class is fixed."""
        below = f"--{parent}."
        return any(flag.startswith(below) and flag != f"{below}help" for flag in self.flags)

    def negative(self, found: Found) -> str | None:
        """Return the flag that means `NAME=false`; None if there is none by its name."""
        group, dot, last = found.name.rpartition(".")
        forms = [f"--{no}{found.name}" for no in _NOES] + [f"--{group}{dot}{no}{last}" for no in _NOES]
        return next((form for form in forms if form in self.flags), None)

    def nearest(self, name: str) -> str:
        """Return a hint at the argument that was meant, or the list of all."""
        names = sorted(flag for each in self.arguments for flag in each.long_flags)
        names += [each.name for each in self.positionals]
        close = did_you_mean(f"--{name}", names, max_names=1, cutoff=0.4)
        return close or f"the script's help shows {', '.join(names) or 'none'}"

    def follow(self, words: Sequence[str]) -> "FixedArguments":
        """Return what these arguments give, which stand before the settings."""
        parser, given, num_bare, is_known = self, list[str](), 0, True
        left = deque(words)
        while left:
            word = left.popleft()
            name, has_value, _ = word.partition("=")
            if word == "--":
                num_bare += len(left)
                break
            if word.startswith("-"):
                given.append(name)
                argument = next((each for each in parser.arguments if name in (*each.flags, *each.negatives)), None)
                is_known &= word.startswith("--") or argument is not None
                num_values = 0 if has_value or argument is None else _most_values(argument)
                while num_values and left and not left[0].startswith("-"):
                    left.popleft()
                    num_values -= 1
            elif word in parser.commands:
                parser, given, num_bare = parser.commands[word], [], 0
            else:
                num_bare += 1
                is_known &= not word.startswith("@")  # a file of arguments
        return FixedArguments(parser, given, num_bare, is_known)


@dataclass(frozen=True)
class FixedArguments:
    """What the fixed arguments of a command give.

    `parser` is that of the subcommand which they name, `given` its flags among them, `num_bare` the number of its
    arguments by position. Without `is_known` they may give any others.
    """

    parser: ScriptParser
    given: Collection[str]
    num_bare: int
    is_known: bool

    def missing(self, names: Collection[str]) -> list[str]:
        """Return the names of the required arguments that neither these nor settings of such names give."""
        positionals = self.parser.positionals
        if not self.is_known or self.num_bare > len(positionals):  # fire takes any argument by position too
            return []
        found = [each.argument for name in names if (each := self.parser.find(name)) is not None]
        num_given = len(positionals) if self.num_bare and any(each.nargs for each in positionals) else self.num_bare
        found += positionals[:num_given]
        return [
            (each.long_flags[0].lstrip("-") if each.flags else each.name)
            for each in self.parser.arguments
            if each.required and each not in found and not self._is_given(each, names)
        ]

    def _is_given(self, argument: Argument, names: Collection[str]) -> bool:
        flags = (*argument.flags, *argument.negatives)
        given = [*self.given, *(f"--{name}" for name in names)]
        return any(flag.startswith(each) for flag in flags for each in given)  # argparse takes abbreviations


def _most_values(argument: Argument) -> float:
    """The most words that may follow its flag."""
    if argument.nargs in ("*", "+"):
        return math.inf
    return argument.nargs if isinstance(argument.nargs, int) else 1


def _may_be_equal(value: str, choice: str) -> bool:
    """Whether a script may take both for the same: it may ignore case, or read a number."""
    if value.casefold() == choice.casefold():
        return True
    try:
        return float(value) == float(choice)
    except ValueError:
        return False
