"""The settings of a script on the command line: Hydra's syntax, and each value also as it was written."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hydra.core.override_parser import overrides_parser
from hydra.core.override_parser.overrides_visitor import HydraErrorListener, HydraOverrideVisitor
from hydra.core.override_parser.types import Override, OverrideType, QuotedString
from hydra.errors import HydraException

from runmanager.app.compose.grid_rules import GridRules, varying_names
from runmanager.app.compose.override_grid import axis_fault, axis_values, num_values
from runmanager.app.programs.resume_setting import RUN_DIR
from runmanager.app.request.override_quoting import format_override, quote_text
from runmanager.errors import ConfigurationError
from runmanager.text import first_line, shell_quote

DEVICE_NAMES = re.compile(r"auto|cpu|mps|cuda(:\d+)?", re.IGNORECASE)
"""The values that name a device of PyTorch."""

_grammar: Any = overrides_parser  # what it imports of ANTLR differs between Hydra's versions

_RUN_DIR_WORD = "%runmanager-run-dir%"  # braces have a meaning in Hydra's syntax


@dataclass(frozen=True)
class Setting:
    """One value: as a table shows it (`value`), and as the script gets it (`text`).

    A list has its `items`, and is a text to a script that takes one word for it. None leaves an argument out.
    """

    value: bool | int | float | str | list[Any] | None
    text: str
    items: "tuple[Setting, ...] | None" = None


@dataclass(frozen=True)
class ValueSet:
    """The values of one setting; `is_axis` if it was written as several."""

    name: str
    values: tuple[Setting, ...]
    is_axis: bool


@dataclass(frozen=True)
class SettingGrid:
    """The settings of a command, its points, and the rules that combine them."""

    sets: Sequence[ValueSet]
    points: Sequence[Mapping[str, Setting]]
    rules: GridRules

    @property
    def names(self) -> list[str]:
        """Every setting of any cell."""
        return list(dict.fromkeys([*(name for point in self.points for name in point), *(s.name for s in self.sets)]))

    @property
    def varying(self) -> list[str]:
        """The settings that vary, in order."""
        searched = self.rules.searched
        return [
            *varying_names(self.points),
            *(each.name for each in self.sets if each.is_axis or each.name in searched),
        ]

    def combinations(self) -> list[dict[str, Setting]]:
        """Return every combination of the values; the last axis varies fastest."""
        return self.rules.combinations({each.name: each.values for each in self.sets}, self.points)


def parse_settings(words: Sequence[str], rules: GridRules | None = None) -> SettingGrid:
    """Parse words like `lr=0.1,0.01` and `batch-size=range(16,64,16)`; of several for one name, the last one applies.

    Raises `ConfigurationError` with every invalid one and the faults of the `rules`, and if the grid is too large.
    """
    rules = rules or GridRules()
    parsed = {each.get_key_element(): (each, texts) for each, texts in _parse_all(words).values()}
    in_points = _parse_all(dict.fromkeys(word for point in rules.points for word in point))
    of_words = {word: _value_set(*each) for word, each in in_points.items()}
    points = [{of_words[word].name: of_words[word].values[0] for word in point} for point in rules.points]
    counts = {name: num_values(each) if each.is_sweep_override() else 1 for name, (each, _) in parsed.items()}
    rules = rules.resolved(counts, dict.fromkeys(name for point in points for name in point))
    return SettingGrid([_value_set(*each) for each in parsed.values()], points, rules)


class _Written(NamedTuple):
    """A value as it was written; `items` are those of a list."""

    text: str
    items: "list[_Written] | None" = None

    @classmethod
    def of(cls, element: Any, line: str) -> "_Written":
        inner = element.listContainer()
        text = line[element.start.start : element.stop.stop + 1].strip()
        return cls(text, None if inner is None else [cls.of(each, line) for each in inner.element()])


_Parsed = tuple[Override, list[_Written] | None]


def _parse_all(words: Iterable[str]) -> dict[str, _Parsed]:
    parsed: dict[str, _Parsed] = {}
    faults = []
    for word in words:
        try:
            override, texts = _parse(word)
        except (HydraException, ValueError, RecursionError) as error:  # ValueError: a number with too many digits
            faults.append(_syntax_fault(word, error))
            continue
        if bad := _form_fault(override) or axis_fault(override):
            faults.append(bad.replace(_RUN_DIR_WORD, RUN_DIR))
        parsed[word] = override, texts
    if faults:
        raise ConfigurationError(faults)
    return parsed


class _WrittenValues(HydraOverrideVisitor):
    """Hydra's reader of a parsed override, which also notes the elements of the value, None for those of a function."""

    elements: "list[Any] | None" = None

    def visitValue(self, ctx: Any) -> Any:
        single = ctx.element()
        elements = [single] if single else ctx.simpleChoiceSweep().element()
        function = single.function() if single else None
        if function is not None and function.getChild(0).getText() == "choice":
            elements = function.element()
        elif any(each.function() for each in elements):
            elements = None
        self.elements = elements
        return super().visitValue(ctx)


def _parse(word: str) -> _Parsed:
    """Parse a word with Hydra's grammar; also return the text of each value, None where a function makes them."""
    hidden = word.replace(RUN_DIR, _RUN_DIR_WORD)
    lexer = _grammar.OverrideLexer(_grammar.InputStream(hidden))
    parser = _grammar.OverrideParser(_grammar.CommonTokenStream(lexer))
    for each in (lexer, parser):
        each.removeErrorListeners()
        each.addErrorListener(HydraErrorListener())
    visitor = _WrittenValues(_grammar.create_functions())
    override: Override = visitor.visit(parser.override())
    override.input_line = hidden
    if visitor.elements is None:
        return override, None
    return override, [_Written.of(each, hidden) for each in visitor.elements]


def _value_set(override: Override, written: Sequence[_Written] | None) -> ValueSet:
    values = axis_values(override) if override.is_sweep_override() else [override.value()]
    if written is None:  # made by a function
        written = [_Written(str(value).lower() if isinstance(value, bool) else str(value)) for value in values]
    settings = tuple(_setting(value, *each) for value, each in zip(values, written, strict=True))
    return ValueSet(override.get_key_element(), settings, is_axis=override.is_sweep_override())


def _setting(value: Any, text: str, written: Sequence[_Written] | None = None) -> Setting:
    if isinstance(value, QuotedString | str):
        text = value.text if isinstance(value, QuotedString) else value
        text = text.replace(_RUN_DIR_WORD, RUN_DIR)
        return Setting(text, text)
    text = text.replace(_RUN_DIR_WORD, RUN_DIR)
    if isinstance(value, bool):
        return Setting(value if text in ("true", "false") else text, text)
    if text == "null" and value is None:
        return Setting(None, text)
    if written is not None:
        return Setting(text, text, tuple(_setting(inner, *each) for inner, each in zip(value, written, strict=True)))
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return Setting(value if is_number else text, text)  # a mapping is a text to a script


def texts_of_word(word: str) -> list[str]:
    """Return the values of a setting, each as a word has it. Raises `ConfigurationError` for an invalid one."""
    (values,) = parse_settings([word]).sets
    return [setting_word("", each).partition("=")[2] for each in values.values]


def setting_word(name: str, setting: Setting) -> str:
    """Return a setting as a word of a command, with the same value and text."""
    is_text = isinstance(setting.value, str) and setting.items is None
    return format_override(name, setting.text) if is_text else f"{name}={setting.text}"


def _form_fault(override: Override) -> str | None:
    word = override.input_line or ""
    line = f"`{word}` must"
    name = override.get_key_element().lstrip("+~")
    if override.type is not OverrideType.CHANGE:
        return f"{line} be NAME=VALUE, got `{word[:1]}`; a script has no defaults to add to or delete."
    if override.package is not None or "/" in name or not name:
        return f"{line} be NAME=VALUE, got a name that no command-line argument can have."
    if override.value_type is not None and override.value_type.name.startswith("GLOB"):
        return f"{line} list its values, got a glob, which has nothing to match; write choice(…)."
    return None


def _syntax_fault(word: str, error: Exception) -> str:
    name, given, value = word.partition("=")
    if not given:
        return f"`{word}` must be NAME=VALUE, got no value; arguments that are the same in all cells stand after `--`."
    reason = first_line(str(error)).partition(" expecting ")[0]
    elements = [each.strip() for each in value.split(",") if each.strip()]
    written = ",".join(each if _can_be_parsed(f"{name}={each}") else quote_text(each) for each in elements)
    way_out = "" if '"' in value else f"; a text like this is written {shell_quote(f'{name}={written}')}"
    return f"`{word}` must be a setting like lr=0.1, got what cannot be parsed: {reason}{way_out}."


def _can_be_parsed(word: str) -> bool:
    try:
        _parse(word)
    except (HydraException, ValueError, RecursionError):
        return False
    return True
