"""TensorBoard's web server and its fast data server, each in a process of its own that starts while runs are linked.

The data server reads the runs while TensorBoard is still imported. The web server's process reads lines of JSON from
its standard input, each with TensorBoard's options and the address of a data server. It answers each with a line:
`serves`, or `taken` if the port is. It ends with its standard input, and so with its parent.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runmanager.errors import RunManagerError

_PACKAGE = str(Path(__file__).resolve().parents[3])
# The package may not be installed; the current folder, which Python would search first, may have any module.
_MAIN = (
    "import sys; sys.path.append(sys.argv[1]); from runmanager.tracking.tensorboard.board_server import main; main()"
)
_BINARY = "TENSORBOARD_DATA_SERVER_BINARY"  # TensorBoard's own variable for another data server
_START_SECONDS = 10.0
_POLL_SECONDS = 0.005


class BoardServer:
    """The parent's side: starts the process, and tells it what to serve."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN, _PACKAGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def serve(self, options: list[str], *, data_server: str) -> bool:
        """Serve with TensorBoard's `options`; return whether their port was still free.

        `data_server` is the address of one that has the data; empty if TensorBoard is to read it. Raises
        `RunManagerError` if TensorBoard does not start.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([options, data_server]) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self.require_life()
        return answer == "serves\n"

    def require_life(self) -> None:
        """Raise `RunManagerError` if the process has ended."""
        if self._process.poll() is not None:
            raise RunManagerError(
                f"TensorBoard must keep running, but it ended with status {self._process.returncode}."
            )


def serving_options(folder: Path, *, title: str, host: str, port: int, reload_seconds: int) -> list[str]:
    """Options of TensorBoard for a folder of runs that are being written."""
    return [
        *("--logdir", str(folder), "--window_title", title),
        *("--host", host, "--port", str(port)),
        *("--reload_interval", str(reload_seconds)),
    ]


def main() -> None:
    """The process's side: import TensorBoard, then serve what the parent asks for until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the parent decides
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what TensorBoard prints is not an answer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a library bundled with TensorBoard warns when it is imported
        from tensorboard import default, program
    for line in sys.stdin:
        options, data_server = json.loads(line)
        answers.write("serves\n" if _is_serving(program, default.get_plugins(), options, data_server) else "taken\n")
    os._exit(0)  # its threads are at work


def _is_serving(program: Any, plugins: Any, options: list[str], data_server: str) -> bool:
    server = program.TensorBoard(plugins=plugins)
    if data_server:
        options = [*options, "--grpc_data_provider", data_server]
    else:
        _keep_reading()
        options = [*options, "--load_fast", "false"]
    server.configure(["tensorboard", *options])
    try:
        server.launch()
    except program.TensorBoardPortInUseError:
        return False
    return True


def _keep_reading() -> None:
    """Let TensorBoard's own reader continue where a run or a file is gone that it has just found.

    Otherwise its thread ends with the error of a run, and a file that is gone hides those that follow it.
    """
    from tensorboard.backend.event_processing.directory_watcher import DirectoryDeletedError
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.compat import tf

    add_run, load = EventMultiplexer.AddRun, RawEventFileLoader.Load

    def add_run_that_may_go(self: Any, path: str, name: str | None = None) -> Any:
        with contextlib.suppress(OSError, DirectoryDeletedError):
            add_run(self, path, name)
        return self

    def load_file_that_may_go(self: Any) -> Iterator[bytes]:
        with contextlib.suppress(OSError, tf.errors.NotFoundError):
            yield from load(self)

    EventMultiplexer.AddRun = add_run_that_may_go
    RawEventFileLoader.Load = load_file_that_may_go


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
