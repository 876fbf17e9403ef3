"""TensorBoard's fast data server, started before TensorBoard itself: it reads the runs while that is still imported."""

import contextlib
import importlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["DataServer", "data_server"]

_BINARY = "TENSORBOARD_DATA_SERVER_BINARY"  # TensorBoard's own variable for another one
_START_SECONDS = 10.0
_POLL_SECONDS = 0.005


class DataServer:
    """A data server that was started; None where there is none."""

    def __init__(self, process: "subprocess.Popen[bytes] | None", port_file: Path) -> None:
        self._process = process
        self._port_file = port_file

    def address(self) -> str:
        """Wait until it listens, and return where; empty if it did not start, so that TensorBoard must read itself."""
        give_up_at = time.monotonic() + _START_SECONDS
        while self._process is not None and self._process.poll() is None and time.monotonic() < give_up_at:
            text = self._port_file.read_text() if self._port_file.exists() else ""
            if text.endswith("\n"):
                return f"localhost:{int(text)}"
            time.sleep(_POLL_SECONDS)
        return ""


@contextlib.contextmanager
def data_server(served: Path, scratch: Path, *, reload_seconds: int) -> Iterator[DataServer]:
    """Run a data server that reads the folder `served` again and again, until the block ends or this process dies.

    Files of its own are in `scratch`. Without the package `tensorboard-data-server` there is none.
    """
    binary = _binary()
    if binary is None:
        yield DataServer(None, scratch)
        return
    port_file = scratch / ".data-server-port"
    command = [
        *(binary, f"--logdir={served}", f"--reload={reload_seconds}", "--samples-per-plugin="),
        *("--port=0", f"--port-file={port_file}", "--die-after-stdin"),
    ]
    try:
        # Its standard input ends with this process, and so does it.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        yield DataServer(None, port_file)
        return
    try:
        yield DataServer(process, port_file)
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _binary() -> str | None:
    if _BINARY in os.environ:
        return os.environ[_BINARY] or None
    try:
        found: str | None = importlib.import_module("tensorboard_data_server").server_binary()
    except ImportError:
        return None
    return found
