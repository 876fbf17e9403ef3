"""Commands as real processes on a terminal or in pipes, each a fork of a process that has made the imports.

`python forked_commands.py` is that process: it reads a request a line, and writes an answer a line.
"""

import base64
import contextlib
import gc
import importlib
import json
import os
import pty
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ForkedCommands", "Output"]

SECONDS = 300.0
_ENDS_BY = b"Ctrl-C ends it"  # what a command prints that serves until it is interrupted
_IMPORTED = (
    *("pandas", "matplotlib.figure", "hydra.core.override_parser.overrides_parser", "runmanager.cli.main"),
    *("runmanager.results.report.report", "runmanager.app.hydra_main", "runmanager.app.script_main"),
)
_IMPORTING_TORCH = ("doctor",)  # which can hang in a fork of a process that has started threads of NumPy
_COLUMNS = {True: "100", False: "10000"}


@dataclass(frozen=True)
class Output:
    """Exit status and output of a command; on a terminal `err` is part of `out`."""

    status: int
    out: bytes
    err: bytes


class ForkedCommands:
    """Runs commands one after the other, in a folder and an environment."""

    def __init__(self, folder: str, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._server = subprocess.Popen(
            [sys.executable, __file__], env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, words: Sequence[str], *, is_terminal: bool) -> Output:
        assert self._server.stdin is not None and self._server.stdout is not None
        print(json.dumps([list(words), self._folder, is_terminal]), file=self._server.stdin, flush=True)
        status, out, err = json.loads(self._server.stdout.readline())
        return Output(status, base64.b64decode(out), base64.b64decode(err))

    def end(self) -> None:
        self._server.communicate(timeout=SECONDS)


def _run(words: Sequence[str], folder: str, is_terminal: bool) -> tuple[int, bytes, bytes]:
    out = pty.openpty() if is_terminal else os.pipe()
    err = (os.dup(out[0]), os.dup(out[1])) if is_terminal else os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(words, folder, out[1], err[1], is_terminal=is_terminal)
    os.close(out[1])
    os.close(err[1])
    if is_terminal:
        os.close(err[0])
    texts = _read_until_the_end([out[0]] if is_terminal else [out[0], err[0]], pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), texts[0], b"" if is_terminal else texts[1]


def _become(words: Sequence[str], folder: str, out: int, err: int, *, is_terminal: bool) -> None:
    """Run the command in this process, and end it."""
    os.setsid()
    os.chdir(folder)
    os.environ["COLUMNS"] = _COLUMNS[is_terminal]
    null = os.open(os.devnull, os.O_RDONLY)
    for number, stream in enumerate((null, out, err)):
        os.dup2(stream, number)
    os.closerange(3, 100)
    if words[0] in _IMPORTING_TORCH:
        code = "from runmanager.cli.main import main; main()"
        os.execv(sys.executable, [sys.executable, "-c", code, *words])
    from runmanager.cli.main import run_command

    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    sys.argv = ["runmanager", *words]
    os.execve = _run_program  # type: ignore[assignment]  # a Hydra application, which would make all imports again
    try:
        status = run_command(words)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run_program(python: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run `python PROGRAM …` in this process."""
    sys.argv, sys.orig_argv = list(words[1:]), list(words)
    os.environ.update(environment)
    runpy.run_path(words[1], run_name="__main__")
    sys.exit()


def _read_until_the_end(streams: list[int], pid: int) -> list[bytes]:
    texts = dict.fromkeys(streams, b"")
    opened, until, is_ending = list(streams), time.monotonic() + SECONDS, False
    while opened:
        ready, _, _ = select.select(opened, [], [], 1.0)
        if time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for stream in ready:
            try:
                part = os.read(stream, 1 << 16)
            except OSError:  # what Linux reports once no process has the terminal open
                part = b""
            texts[stream] += part
            if not part:
                opened.remove(stream)
                os.close(stream)
        if not is_ending and _ENDS_BY in texts[streams[0]]:
            is_ending = True
            os.kill(pid, signal.SIGINT)
    return list(texts.values())


def main() -> None:
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    for line in sys.stdin:
        status, *texts = _run(*json.loads(line))
        print(json.dumps([status, *(base64.b64encode(text).decode() for text in texts)]), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
