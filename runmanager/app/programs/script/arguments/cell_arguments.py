"""The settings of a cell as the arguments of a script."""

import shlex
from collections.abc import Mapping, Sequence

from runmanager.app.programs.script.arguments.help_text import Arity, HelpFlags
from runmanager.app.programs.script.arguments.setting_words import RUN_DIR, Setting
from runmanager.errors import ConfigurationError

__all__ = ["argument_faults", "form_faults", "make_arguments"]

_NAME, _VALUE = "{name}", "{value}"


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
    """Faults of settings whose argument cannot be known: `false` where the help does not say what a flag takes."""
    if form is not None:
        return []
    return [
        f"`{name}=false` must be a flag that the script's help shows, got one that cannot be known; write {name}=False "
        f"to pass it as written, or put the argument after `--`."
        for name, setting in settings.items()
        if setting.value is False and _false_argument(name, flags) is None
    ]


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
    return [f"--{name}={setting.text}"]  # `true` too, where a bare flag would be refused


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
