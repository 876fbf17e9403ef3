"""The settings of a script: read from the command line, in Hydra's syntax, and made a cell's arguments.

Each value is kept as it was written too.
"""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hydra.core.override_parser import overrides_parser
from hydra.core.override_parser.overrides_visitor import HydraErrorListener, HydraOverrideVisitor
from hydra.core.override_parser.types import Override, OverrideType, QuotedString
from hydra.errors import HydraException

from runmanager.app.compose.grid_rules import GridRules, varying_names
from runmanager.app.compose.override_grid import axis_fault, axis_values, num_values
from runmanager.app.programs.resume_setting import RUN_DIR
from runmanager.app.programs.script.arguments.script_parser import Found, ScriptParser
from runmanager.app.request.command import format_override, quote_text
from runmanager.errors import ConfigurationError
from runmanager.text import first_line, shell_quote
from runmanager.validation import did_you_mean

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


_NAME, _VALUE = "{name}", "{value}"
_MAX_LISTED = 12  # choices
_SKIPS = "(--unchecked skips this check)"


def form_faults(form: str | None) -> list[str]:
    """Faults of `--argument`, the form of a setting; None is the default form."""
    if form is None:
        return []
    try:
        words = shlex.split(form)
    except ValueError:
        words = []
    if any(_NAME in word for word in words) and any(_VALUE in word for word in words):
        return []
    return [f"`--argument` must contain {_NAME} and {_VALUE}, got {form!r}; the default is '--{_NAME}={_VALUE}'."]


def as_taken(name: str, setting: Setting, form: str | None, parser: ScriptParser | None) -> Setting:
    """Return a setting whose value is a list where the script takes several words for it."""
    found = _find(name, parser)
    if setting.items is None or found is None or (form is not None and found.flag):
        return setting
    takes_list = found.argument.takes_several or found.argument.repeats
    return replace(setting, value=_listed(setting)) if takes_list else setting


def _listed(setting: Setting) -> Any:
    return setting.value if setting.items is None else [_listed(each) for each in setting.items]


def argument_faults(settings: Mapping[str, Setting], form: str | None, parser: ScriptParser | None) -> list[str]:
    """Faults of settings by the script's parser: a value that is none of the choices, too few or too many of them.

    Also an argument for `false`, which cannot be known where it is not known what a flag takes.
    """
    faults: list[str] = []
    for name, setting in settings.items():
        found = _find(name, parser)
        if setting.value is False and form is None and _false_words(name, found, parser) is None:
            faults.append(
                f"`{name}=false` must be a flag that the script's help shows, got one that cannot be known; write "
                f"{name}=False to pass it as written, or put the argument after `--`."
            )
        elif found is not None and (form is None or not found.flag):
            faults += _value_faults(name, setting, found)
    return faults


def _value_faults(name: str, setting: Setting, found: Found) -> Iterator[str]:
    argument, number = found.argument, found.argument.nargs
    if setting.value is None and argument.required:
        yield f"`{name}` must be given, as the script requires it, got null {_SKIPS}."
    if setting.value is None or (isinstance(setting.value, bool) and number in (0, "?")):
        return
    if number == 0 and setting.text not in ("True", "False"):  # these are passed as they are written
        yield f"`{name}` must be true or false, as the script's help shows a flag, got {setting.text} {_SKIPS}."
        return
    if setting.items is not None and not isinstance(setting.value, list) and argument.is_number:
        several = ",".join(each.text for each in setting.items)
        way_out = f"several values are written {name}={several}" if several else "give a number"
        yield f"`{name}` must be one number, as the script's help says, got {setting.text}; {way_out} {_SKIPS}."
        return
    for each in _occurrences(setting, found):
        is_wrong = len(each) != number if isinstance(number, int) and number else number == "+" and not each
        if is_wrong:
            rule = "have at least one value" if number == "+" else f"be a list of {number}"
            yield f"`{name}` must {rule}, as the script's help says, got {setting.text} {_SKIPS}."
        for text in each:
            if argument.is_number and len(words := text.split()) > 1:
                got = f"got {text}; several are written {name}=[{','.join(words)}]"
                yield f"`{name}` must be a number, as the script's help says, {got} {_SKIPS}."
            # The script was asked without a GPU.
            if not DEVICE_NAMES.fullmatch(text) and (choices := argument.choices_without(text)):
                listed = ", ".join(choices) if len(choices) <= _MAX_LISTED else f"{len(choices)} choices"
                close = did_you_mean(text, choices, max_names=1)
                got = f"got {text}{'; ' if close else ''}{close}"
                yield f"`{name}` must be one of {listed}, as the script's help says, {got} {_SKIPS}."


def make_arguments(
    settings: Mapping[str, Setting],
    *,
    fixed: Sequence[str] = (),
    form: str | None = None,
    parser: ScriptParser | None = None,
    run_dir: str = RUN_DIR,
) -> list[str]:
    """Return the script's arguments: the fixed ones, then the settings, with `{run_dir}` replaced.

    `form` is that of `--argument`; without it they have the form that the `parser` takes, and `true` is a flag where
    there is none. Arguments by position stand before flags that could take them for values. Raises
    `ConfigurationError` for the faults of `argument_faults`.
    """
    if faults := argument_faults(settings, form, parser):
        raise ConfigurationError(faults)
    given = [(_find(name, parser), name, each) for name, each in settings.items() if each.value is not None]
    bare = {found.name: each for found, _, each in given if found is not None and not found.flag}
    first, last = [*fixed], list[str]()
    for found, name, setting in given:
        if found is None or found.flag:
            words = _formed(name, setting, form, found) if form is not None else _flagged(name, setting, found, parser)
            is_open = found is not None and found.argument.nargs not in (None, 0) and "=" not in words[-1]
            (last if bare and is_open else first).extend(words)
    for argument in parser.positionals if parser is not None else ():
        if argument.name in bare:
            first += [text for each in _occurrences(bare[argument.name], Found(argument, "")) for text in each]
    return [word.replace(RUN_DIR, run_dir) for word in (*first, *last)]


def _find(name: str, parser: ScriptParser | None) -> Found | None:
    return None if parser is None else parser.find(name)


def _occurrences(setting: Setting, found: Found) -> list[list[str]]:
    """The values of each time that an argument is given."""
    if not isinstance(setting.value, list) or setting.items is None:
        return [[setting.text]]
    items = setting.items
    if not found.argument.repeats:
        return [[each.text for each in items]]
    if found.argument.takes_several and not any(each.items for each in items):
        return [[each.text for each in items]]
    return [[inner.text for inner in each.items or (each,)] for each in items]


def _formed(name: str, setting: Setting, form: str, found: Found | None) -> list[str]:
    spelling = name if found is None else found.name
    return [word.replace(_NAME, spelling).replace(_VALUE, setting.text) for word in shlex.split(form)]


def _flagged(name: str, setting: Setting, found: Found | None, parser: ScriptParser | None) -> list[str]:
    flag = f"--{name}" if found is None else found.flag
    if setting.value is False:
        return _false_words(name, found, parser) or []
    if setting.value is True and (found is None or found.argument.nargs in (0, "?")):
        return [flag]
    if isinstance(setting.value, list) and found is not None:
        several = found.argument.takes_several
        return [
            word
            for each in _occurrences(setting, found)
            for word in ([flag, *each] if several else _pair(flag, each[0]))
        ]
    return _pair(flag, setting.text)  # `true` too, where a bare flag would be refused


def _pair(flag: str, text: str) -> list[str]:
    return [f"{flag}={text}"] if flag.startswith("--") else [flag, text]


def _false_words(name: str, found: Found | None, parser: ScriptParser | None) -> list[str] | None:
    """The words for `NAME=false`; None if they cannot be known."""
    if found is None or parser is None:
        return None
    if not found.flag:
        return ["false"]
    if (negative := parser.negative(found)) is not None:
        return [negative]
    if found.argument.nargs == 0:
        return None if found.argument.negatives else []
    return _pair(found.flag, "false")
