"""Run commands as real processes on a terminal or in a pipe, each a fork of this process, which has the imports.

python forked_commands.py < requests.json > outputs.json
"""

import base64
import contextlib
import gc
import importlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Output", "Request", "run_forked"]

SECONDS = 300.0
_ENDS_BY = b"Ctrl-C ends it"  # what a command prints that serves until it is interrupted
_IMPORTED = (
    *("pandas", "matplotlib.figure", "hydra.core.override_parser.overrides_parser", "runmanager.cli.main"),
    *("runmanager.results.report.report", "runmanager.app.hydra_main", "runmanager.app.script_main"),
)
_COLUMNS = {True: "100", False: "10000"}


@dataclass(frozen=True)
class Request:
    """A command in a folder, on a terminal or in pipes."""

    words: tuple[str, ...]
    folder: str
    is_terminal: bool


@dataclass(frozen=True)
class Output:
    """Exit status and output of a command; on a terminal `err` is part of `out`."""

    status: int
    out: bytes
    err: bytes


def run_forked(requests: Sequence[Request], *, environment: Mapping[str, str]) -> list[Output]:
    """Run the commands one after the other."""
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps([[each.words, each.folder, each.is_terminal] for each in requests]).encode(),
        env=dict(environment),
        stdout=subprocess.PIPE,
        timeout=SECONDS * len(requests),
        check=True,
    )
    return [
        Output(status, base64.b64decode(out), base64.b64decode(err)) for status, out, err in json.loads(done.stdout)
    ]


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
    from runmanager.cli.main import run_command

    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    sys.argv = ["runmanager", *words]
    try:
        status = run_command(words)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


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
    requests = json.load(sys.stdin)
    outputs = [_run(*each) for each in requests]
    encoded = [(status, *(base64.b64encode(text).decode() for text in texts)) for status, *texts in outputs]
    json.dump(encoded, sys.stdout)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
