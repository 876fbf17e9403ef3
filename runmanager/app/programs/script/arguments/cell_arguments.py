"""The settings of a cell as the arguments of a script."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runmanager.app.programs.resume_setting import RUN_DIR
from runmanager.app.programs.script.arguments.script_parser import Found, ScriptParser
from runmanager.app.programs.script.arguments.setting_words import DEVICE_NAMES, Setting
from runmanager.errors import ConfigurationError
from runmanager.validation import did_you_mean

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
