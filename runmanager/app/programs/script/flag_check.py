"""The check of a command's settings against the help of the script itself."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runmanager.app.programs.script.arguments.help_call import HELP_SECONDS, call_for_help
from runmanager.app.programs.script.arguments.help_text import HelpFlags, read_help
from runmanager.app.programs.script.script import Script
from runmanager.errors import ConfigurationError
from runmanager.text import first_line

__all__ = ["FlagCheck", "check_flags"]

_PARSED_BEFORE_HELP = ("argparse", "transformers")  # these check the values that stand before --help
_MAX_WORDS = 1000
_REFUSED = re.compile(r"^.*: error: (?P<message>argument \S+: invalid .*)$")
_FAILED = re.compile(r"[\w.]*(Error|Exception|Interrupt)(: |$)")


@dataclass(frozen=True)
class FlagCheck:
    """What the script's help says of its flags, None if it was not asked; `note` says why they were not checked."""

    flags: HelpFlags | None = None
    note: str = ""


def check_flags(
    script: Script,
    names: Iterable[str],
    *,
    values: Mapping[str, Sequence[str]] | None = None,
    fixed: Sequence[str] = (),
    form: str | None = None,
    unchecked: bool = False,
    seconds: float = HELP_SECONDS,
) -> FlagCheck:
    """Check that the script has a flag for each setting, by its own help, where its source shows that it honours it.

    The help is asked for with the `fixed` arguments, which may name a subcommand; the script has `seconds` to answer.
    Where its library reads the arguments before the help, it is also given `values`, as words, of the settings.
    Raises `ConfigurationError` with every unknown flag, and with a value that the script refuses.
    """
    if unchecked:
        return FlagCheck()
    if form is not None and not form.startswith("--{name}"):
        return FlagCheck(note=_unchecked(f"its help does not show arguments of the form {form}"))
    library = script.library
    if library is None:
        return FlagCheck(note=_unchecked("its source shows no library that would answer to --help"))
    command, refused = [*script.command, *fixed], ""
    trial = _trial(values or {}) if library in _PARSED_BEFORE_HELP and form is None else []
    text = call_for_help([*command, *trial], library, script.folder, seconds=seconds)
    if trial and text is not None and ": error: " in (end := _last_line(text)):
        refused = found["message"] if (found := _REFUSED.match(end)) else ""
        text = call_for_help(command, library, script.folder, seconds=seconds)
    if text is None:
        return FlagCheck(note=_unchecked(f"it did not answer to --help within {seconds:g} seconds"))
    flags = read_help(text, library)
    if flags is None:
        end = _last_line(text)
        why = f"it fails with --help: {end}" if _FAILED.match(end) else "what it prints with --help shows no usage"
        return FlagCheck(note=_unchecked(why))
    faults = [
        f"`{name}` must be a flag of {script.word}, got an unknown one; {flags.nearest(name).rstrip('.')} "
        "(--unchecked skips this check)."
        for name in names
        if not flags.knows(name)
    ]
    if refused:
        rule = f"Settings must be what {script.word} takes, got one that it refuses"
        faults.append(f"{rule}: {refused} (--unchecked skips this check).")
    if faults:
        raise ConfigurationError(faults)
    return FlagCheck(flags)


def _trial(values: Mapping[str, Sequence[str]]) -> list[str]:
    """All values as arguments of one call, in which the last one of a setting would count; none if there are many."""
    words = [f"--{name}={value}" for name, each in values.items() for value in each]
    return words if len(words) <= _MAX_WORDS else []


def _last_line(text: str) -> str:
    return first_line("\n".join(reversed(text.splitlines())))


def _unchecked(reason: str) -> str:
    return f"The names of the settings are not checked against the script: {reason}."
