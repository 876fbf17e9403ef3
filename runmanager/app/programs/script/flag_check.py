"""The check of a command's settings against the help of the script itself."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runmanager.app.programs.script.arguments.help_call import HELP_SECONDS, call_for_help
from runmanager.app.programs.script.arguments.help_text import HelpFlags, read_help
from runmanager.app.programs.script.script import Script
from runmanager.app.request.sweep_request import flag_of, options
from runmanager.errors import ConfigurationError
from runmanager.text import first_line

__all__ = ["FlagCheck", "check_flags", "flags_of"]

_COMMAND = re.compile(r"[A-Za-z][\w:-]*")
_REFUSED = re.compile(r"^\W*(\S+: )?error\b", re.IGNORECASE | re.MULTILINE)  # as argparse, click, typer and fire do
_CONFIGURATION = re.compile(r"conf|cfg", re.IGNORECASE)
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
    fixed: Sequence[str] = (),
    form: str | None = None,
    unchecked: bool = False,
    seconds: float = HELP_SECONDS,
) -> FlagCheck:
    """Check that the script has a flag for each setting, and no other that it requires, by its own help.

    Only where its source shows that it honours it.

    The help is that of the subcommand which the `fixed` arguments may name; the script has `seconds` for each answer.
    Raises `ConfigurationError` with every unknown flag.
    """
    if unchecked:
        return FlagCheck()
    names = list(names)
    if form is not None and not form.startswith("--{name}"):
        return FlagCheck(note=_unchecked(f"its help does not show arguments of the form {form}"))
    library = script.library
    if library is None:
        return FlagCheck(note=_unchecked("its source shows no library that would answer to --help"))
    text, not_taken = _ask_for_help(script, library, fixed, seconds=seconds)
    if text is None:
        return FlagCheck(note=_unchecked(f"it did not answer to --help within {seconds:g} seconds"))
    flags = read_help(text, library)
    if flags is None:
        end = first_line("\n".join(reversed(text.splitlines())))
        why = f"it fails with --help: {end}" if _FAILED.match(end) else "what it prints with --help shows no usage"
        return FlagCheck(note=_unchecked(why))
    faults = [
        f"`{name}` must be a flag of {script.word}, got an unknown one; {_way_out(name, flags, script)} "
        "(--unchecked skips this check)."
        for name in names
        if not flags.knows(name)
    ]
    given = [*names, *(word.lstrip("-").partition("=")[0] for word in fixed if word.startswith("--"))]
    # A short flag or a file of arguments may stand for any of them, and a script may require less with a configuration.
    is_known = all(not word.startswith(("-", "@")) or word.startswith("--") for word in fixed)
    is_known = is_known and not any(_CONFIGURATION.search(name) for name in given)
    faults += [
        f"`{names[0]}` must be given, as {script.word} requires it, got none; add {names[0]}=… "
        "(--unchecked skips this check)."
        for names in flags.required
        if is_known and not any(name.startswith(each) for name in names for each in given)
    ]
    if faults and not_taken:
        return FlagCheck(note=_unchecked(f"it does not show the help of `{not_taken}`"))
    if faults:
        raise ConfigurationError(faults)
    return FlagCheck(flags)


def _way_out(name: str, flags: HelpFlags, script: Script) -> str:
    option = name.replace("-", "_")
    if option in options():
        return f"the option of runmanager is written {flag_of(option)}"
    return flags.nearest(name).rstrip(".")


def _ask_for_help(
    script: Script, library: str, fixed: Sequence[str], *, seconds: float
) -> tuple[str | None, str | None]:
    """Return the help of the script, or of its subcommand in `fixed`, and a word of those that it does not take alone.

    No other argument is passed to it, as a library may open, and so empty, the file that one names: a subcommand is a
    word that stands in the help, and no file.
    """
    command, not_taken = script.command, None
    text = call_for_help(command, library, script.folder, seconds=seconds)
    for word in fixed:
        if text is None or not _is_named(word, text) or (script.folder / word).is_file():
            continue
        answer = call_for_help([*command, word], library, script.folder, seconds=seconds)
        if answer is None or _REFUSED.search(answer) or read_help(answer, library) is None:
            not_taken = word
        else:
            command, text = [*command, word], answer
    return text, not_taken


def _is_named(word: str, text: str) -> bool:
    return bool(_COMMAND.fullmatch(word) and re.search(rf"(?<![\w.-]){word}(?![\w.-])", text))


def _unchecked(reason: str) -> str:
    return f"The names of the settings are not checked against the script: {reason}."


def flags_of(script: Script) -> list[str]:
    """Return the long flags that the script's own help shows, with their dashes; none where it shows no help."""
    if script.library is None:
        return []
    text, _ = _ask_for_help(script, script.library, (), seconds=HELP_SECONDS)
    flags = None if text is None else read_help(text, script.library)
    return [] if flags is None else [f"--{name}" for name in flags.arities]
