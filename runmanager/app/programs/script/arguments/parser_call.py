"""A script's own parser: the script is started with `--help`, without a GPU or a terminal, for at most a minute."""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from runmanager.app.programs.script.arguments import parser_hook
from runmanager.app.programs.script.arguments.script_parser import ScriptParser

__all__ = ["HELP_SECONDS", "ask_parser"]

HELP_SECONDS = 60.0
_MAX_BYTES = 2**20
_WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "NO_COLOR": "1", "TERM": "dumb"}


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
