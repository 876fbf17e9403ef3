"""The settings of a cell as the arguments of a script."""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from runmanager.app.programs.script.arguments.help_text import Arity, HelpFlags
from runmanager.app.programs.script.arguments.setting_words import DEVICE_NAMES, RUN_DIR, Setting
from runmanager.errors import ConfigurationError
from runmanager.validation import did_you_mean

__all__ = ["argument_faults", "form_faults", "make_arguments"]

_NAME, _VALUE = "{name}", "{value}"
_MAX_LISTED = 12  # choices


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


def argument_faults(settings: Mapping[str, Setting], form: str | None, flags: HelpFlags | None) -> list[str]:
    """Faults of settings by the script's help: a value that is none of a flag's choices, and an argument for `false`.

    The latter cannot be known where the help does not say what a flag takes.
    """
    if form is not None:
        return []
    return [*_choice_faults(settings, flags)] + [
        f"`{name}=false` must be a flag that the script's help shows, got one that cannot be known; write {name}=False "
        f"to pass it as written, or put the argument after `--`."
        for name, setting in settings.items()
        if setting.value is False and _false_argument(name, flags) is None
    ]


def _choice_faults(settings: Mapping[str, Setting], flags: HelpFlags | None) -> Iterator[str]:
    for name, setting in settings.items():
        if flags is None or _flagged(name, setting, flags) != [_pair(name, setting)]:
            continue
        if DEVICE_NAMES.fullmatch(setting.text):
            continue  # the script was asked without a GPU
        if choices := flags.choices_without(name, setting.text):
            listed = ", ".join(choices) if len(choices) <= _MAX_LISTED else f"{len(choices)} choices"
            close = did_you_mean(setting.text, choices, max_names=1)
            got = f"got {setting.text}{'; ' if close else ''}{close}"
            yield f"`{name}` must be one of {listed}, as the script's help says, {got} (--unchecked skips this check)."


def make_arguments(
    settings: Mapping[str, Setting],
    *,
    fixed: Sequence[str] = (),
    form: str | None = None,
    flags: HelpFlags | None = None,
    run_dir: str = RUN_DIR,
) -> list[str]:
    """Return the script's arguments: the fixed ones, then the settings, with `{run_dir}` replaced.

    `form` is that of `--argument`; without it `true` and `false` are flags, in the way that `flags` shows. Raises
    `ConfigurationError` for the faults of `argument_faults`.
    """
    if faults := argument_faults(settings, form, flags):
        raise ConfigurationError(faults)
    words = [*fixed]
    for name, setting in settings.items():
        words += _formed(name, setting, form) if form is not None else _flagged(name, setting, flags)
    return [word.replace(RUN_DIR, run_dir) for word in words]


def _formed(name: str, setting: Setting, form: str) -> list[str]:
    return [word.replace(_NAME, name).replace(_VALUE, setting.text) for word in shlex.split(form)]


def _flagged(name: str, setting: Setting, flags: HelpFlags | None) -> list[str]:
    if setting.value is False:
        return _false_argument(name, flags) or []
    if setting.value is True and (flags is None or flags.library == "fire" or flags.arity(name) is not Arity.REQUIRED):
        return [f"--{name}"]
    return [_pair(name, setting)]  # `true` too, where a bare flag would be refused


def _pair(name: str, setting: Setting) -> str:
    return f"--{name}={setting.text}"


def _false_argument(name: str, flags: HelpFlags | None) -> list[str] | None:
    """The words for `NAME=false`; None if they cannot be known."""
    if flags is None:
        return None
    if (negative := flags.negative(name)) is not None:
        return [negative]
    match flags.arity(name):
        case Arity.NONE:
            return []
        case Arity.OPTIONAL | Arity.REQUIRED:
            return [f"--{name}=false"]
    return None
