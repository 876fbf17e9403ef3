"""Python programs in processes that share their imports, which take most of the time of a short program.

The programs are forks of a server that has made the imports (`fork_server.py`). Those that must be seen to import by
themselves, or whose tracebacks are compared as a whole, need a process of their own.
"""

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

__all__ = ["ForkedProcess", "start_forked"]

MODULES = (
    *("torch", "torch._dynamo", "torchdata.stateful_dataloader", "matplotlib.figure", "pandas", "scipy.stats"),
    *("runmanager.tracking.manager", "runmanager.results.result_files", "runmanager.results.report.report"),
)
_ROOT = Path(__file__).resolve().parents[1]
_SERVER = Path(__file__).with_name("fork_server.py")
_START_SECONDS = 120.0
TIMEOUT_SECONDS = 300.0


class ForkedProcess:
    """A running program, with what tests need of `subprocess.Popen`. It leads a process group."""

    def __init__(self, words: Sequence[str], connection: socket.socket, streams: Sequence[BinaryIO]) -> None:
        self._words = words
        self._connection = connection
        self._streams = streams
        self.pid = self._number(_START_SECONDS)
        self.returncode: int | None = None

    def _number(self, seconds: float) -> int:
        self._connection.settimeout(seconds)
        answer = self._connection.recv(100)
        if not answer:
            raise RuntimeError("the server of forked programs has died")
        return int(answer)

    def poll(self) -> int | None:
        """Return the exit status, as of `subprocess.Popen`; None while the program runs."""
        with contextlib.suppress(TimeoutError, BlockingIOError):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit status. Raises `TimeoutError`."""
        if self.returncode is None:
            self.returncode = self._number(timeout)
            self._connection.close()
        return self.returncode

    def end(self, timeout: float = TIMEOUT_SECONDS) -> "subprocess.CompletedProcess[str]":
        """Wait for the end; return status and output. Raises `TimeoutError`, after it has killed the program."""
        try:
            status = self.wait(timeout)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            raise
        texts = []
        for stream in self._streams:
            stream.seek(0)
            texts.append(stream.read().decode())
            stream.close()
        return subprocess.CompletedProcess(list(self._words), status, *texts)

    def kill(self) -> None:
        """Kill the program alone."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def start_forked(
    words: Sequence[str], *, folder: Path, environment: Mapping[str, str] = os.environ, log: Path | None = None
) -> ForkedProcess:
    """Start `python WORDS` (a script, `-c` or `-m`) in a folder, without input. With a `log` its output goes there."""
    request = {"words": list(words), "folder": str(folder), "environment": dict(environment)}
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(_server())
    with contextlib.ExitStack() as opened:
        nothing: BinaryIO = opened.enter_context(Path(os.devnull).open("rb"))
        streams: list[BinaryIO] = []
        if log is None:
            streams = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115  # `end` closes them
            out, err = streams
        else:
            out = err = opened.enter_context(log.open("ab"))
        numbers = [stream.fileno() for stream in (nothing, out, err)]
        socket.send_fds(connection, [json.dumps(request).encode()], numbers)
        return ForkedProcess(words, connection, streams)


@functools.cache
def _server() -> str:
    """Start the server, and return the address at which it listens. It ends when this process does."""
    address = f"{tempfile.mkdtemp(prefix='forked-python-')}/server"
    variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "PYTHONPATH": str(_ROOT)}
    server = subprocess.Popen(
        [sys.executable, str(_SERVER), address, *MODULES],
        env=os.environ | variables,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    atexit.register(_end, server)
    until = time.monotonic() + _START_SECONDS
    while not Path(address).exists():
        if server.poll() is not None or time.monotonic() > until:
            raise RuntimeError("the server of forked programs did not start")
        time.sleep(0.01)  # between two polls
    return address


def _end(server: "subprocess.Popen[bytes]") -> None:
    assert server.stdin is not None
    server.stdin.close()  # which is what keeps it alive
    server.wait(_START_SECONDS)
