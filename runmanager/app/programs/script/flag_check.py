"""The check of a command's settings against the script's own parser, which is asked in a process of its own."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from runmanager.app.programs.script.arguments import parser_hook
from runmanager.app.programs.script.arguments.script_parser import Argument, ScriptParser, plain
from runmanager.app.programs.script.script import Script
from runmanager.app.request.sweep_request import flag_of, options
from runmanager.errors import ConfigurationError
from runmanager.text import first_line

_CONFIGURATION = re.compile(r"conf|cfg", re.IGNORECASE)
_FAILED = re.compile(r"[\w.]*(Error|Exception|Interrupt)(: |$)")
_SKIPS = "(--unchecked skips this check)"


HELP_SECONDS = 60.0
_MAX_BYTES = 2**20
_WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1", "NO_COLOR": "1", "TERM": "dumb"}


def ask_parser(
    command: Sequence[str], libraries: Collection[str], folder: Path, *, seconds: float
) -> tuple[ScriptParser | None, str | None]:
    """Return the parser that a script's command reads its arguments with, and what it prints on both streams.

    The script ends there (see `parser_hook`). The parser is None if the script reads them in another way, and the
    output too if it did not end within `seconds`. It runs in `folder`, in a session of its own, and is killed with all
    that it started. What it prints after the first mebibyte is lost.
    """
    python, *words = command
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "parser.json")
        hooked = [python, str(parser_hook.__file__), str(file), ",".join(libraries), *words]
        output = _output(hooked, folder, seconds=seconds)
        parser = None
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):  # a parser of odd parts
            parser = msgspec.json.decode(file.read_bytes(), type=ScriptParser)
        return parser, output


def _output(command: Sequence[str], folder: Path, *, seconds: float) -> str | None:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        _kill_session(process)

    timer = threading.Timer(seconds, give_up)
    timer.start()
    try:
        assert process.stdout is not None
        with process.stdout:
            output = process.stdout.read(_MAX_BYTES)
    finally:
        timer.cancel()
        _kill_session(process)
        process.wait()
    return None if is_late.is_set() else output.decode("utf-8", errors="replace")


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    return {**variables, **_WITHOUT_GPU}


@dataclass(frozen=True)
class FlagCheck:
    """The script's parser, None if it is not known; `note` says why the settings were not checked."""

    parser: ScriptParser | None = None
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
    """Check that the script has an argument for each setting, and no other that it requires, by its own parser.

    Only where its source shows that it honours `--help`. The parser is that of the subcommand which the `fixed`
    arguments may name; the script has `seconds` to show it. Raises `ConfigurationError` with every unknown setting.
    """
    if unchecked:
        return FlagCheck()
    names = list(names)
    if form is not None and not form.startswith("--{name}"):
        return FlagCheck(note=_unchecked(f"its help does not show arguments of the form {form}"))
    whole, why = _ask(script, seconds)
    if whole is None:
        return FlagCheck(note=_unchecked(why))
    following = whole.follow(fixed)
    parser = following.parser
    faults = [
        f"`{name}` must be a flag of {script.word}, got an unknown one; {_way_out(name, parser)} {_SKIPS}."
        for name in names
        if not parser.knows(name)
    ]
    faults += _given_twice(names, parser, script)
    if not any(map(_CONFIGURATION.search, (*names, *following.given))):  # with one a script may require less
        faults += [
            f"`{name}` must be given, as {script.word} requires it, got none; add {name}=… {_SKIPS}."
            for name in following.missing(names)
        ]
    if faults:
        raise ConfigurationError(faults)
    return FlagCheck(parser)


def flags_of(script: Script, fixed: Sequence[str] = (), *, seconds: float = HELP_SECONDS) -> frozenset[str]:
    """Return the long flags, with their dashes, of the script's parser, or of the subcommand that `fixed` names.

    Empty where the script does not show them. It is asked once for this and for `check_flags`.
    """
    parser, _ = _ask(script, seconds)
    flags = [] if parser is None else parser.follow(fixed).parser.flags
    return frozenset(flag for flag in flags if flag.startswith("--"))


def _ask(script: Script, seconds: float) -> tuple[ScriptParser | None, str]:
    """Return the script's parser, or why it is not known."""
    libraries = script.libraries
    if not libraries:
        return None, "its source shows no library that would answer to --help"
    assert script.file is not None  # it has a source
    parser, output = _answer(script, libraries, seconds, script.file.stat().st_mtime_ns)
    if parser is None and output is None:
        return None, f"it did not answer to --help within {seconds:g} seconds"
    end = first_line("\n".join(reversed((output or "").splitlines())))
    why = f"it fails with --help: {end}" if _FAILED.match(end) else "it does not show what reads them"
    return parser, why


@lru_cache(maxsize=1)
def _answer(
    script: Script, libraries: frozenset[str], seconds: float, changed_ns: int
) -> tuple[ScriptParser | None, str | None]:
    return ask_parser(script.command, sorted(libraries), script.folder, seconds=seconds)


def _given_twice(names: Sequence[str], parser: ScriptParser, script: Script) -> Iterator[str]:
    first: dict[Argument, str] = {}
    for name in names:
        if (found := parser.find(name)) is not None:
            other = first.setdefault(found.argument, name)
            if other != name:
                spelling = found.flag or found.name
                yield f"`{name}` must be given once, got `{other}` too; {script.word} knows both as {spelling}."


def _way_out(name: str, parser: ScriptParser) -> str:
    if plain(name) in options():
        return f"the option of runmanager is written {flag_of(plain(name))}"
    return parser.nearest(name).rstrip(".")


def _unchecked(reason: str) -> str:
    return f"The names of the settings are not checked against the script: {reason}."
