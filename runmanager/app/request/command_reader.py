"""Reads the words of a command: a word NAME=VALUE is a setting, one that begins with a dash an option, in any order."""

import math
import re
from collections import deque
from collections.abc import Sequence
from typing import Any

from runmanager.app.request.command import HYDRA_FLAGS, HYDRA_OPTIONS, Command, choice_faults, in_hydras_syntax
from runmanager.app.request.sweep_request import Form, Option, SweepRequest, options
from runmanager.text import shell_join, shell_quote
from runmanager.validation import fault

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_SEVERAL_SETTINGS = re.compile(r"[+~]*[A-Za-z_][\w./-]*=[^\s\"'=({\[]+(\s+[+~]*[A-Za-z_][\w./-]*=[^\s\"'=]+)+")


def split_fixed(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command before the first `--`, and those after it."""
    index = words.index("--") if "--" in words else len(words)
    return list(words[:index]), list(words[index + 1 :])


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
        self._of_hydra: list[str] = []  # come first: behind an option, Hydra takes no setting if others stand before it
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
            tuple(map(in_hydras_syntax, (*self._of_hydra, *self._settings))),
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
        elif option in (*HYDRA_OPTIONS, *HYDRA_FLAGS):
            self._of_hydra.append(word)
            if option in HYDRA_OPTIONS and option == word and self._left:
                self._of_hydra.append(self._left.popleft())
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
        return any(not word.startswith("-") for word in (*self._of_hydra, *self._settings))

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
        is_apart = word.endswith("=") and following and "=" not in following and not following.startswith("-")
        if following.startswith("=") or is_apart:
            while self._left and (word.endswith("=") or following.startswith("=")):
                word, following = f"{word} {self._left.popleft()}", self._left[0] if self._left else ""
            self._faults.append(f"`{word}` must be one word, got spaces; write {shell_quote(word.replace(' ', ''))}.")
        elif self._settings and "=" in self._settings[-1] and _NUMBER.fullmatch(word):
            values = [self._settings.pop(), word]
            while self._left and _NUMBER.fullmatch(self._left[0]):
                values.append(self._left.popleft())
            line, meant = f"`{' '.join(values)}` must be one word, got spaces between values", ",".join(values)
            name, _, several = meant.partition("=")
            self._faults.append(f"{line}; write {shell_quote(meant)}, or {name}=[{several}] for one list.")
        elif (
            "=" in word and word.endswith(",") and following and "=" not in following and not following.startswith("-")
        ):
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
    if bad := choice_faults(each, text, each.flag):
        return text, bad  # which counts as given, so that it alone is a fault
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
