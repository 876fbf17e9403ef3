"""TensorBoard's web server and its fast data server, each in a process of its own that starts while runs are linked.

The data server reads the runs while TensorBoard is still imported. The web server's process reads lines of JSON from
its standard input, each with TensorBoard's options and the address of a data server. It answers each with a line:
`serves`, or `taken` if the port is. It ends with its standard input, and so with its parent.
"""

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tensorboard.compat.proto.summary_pb2 import Summary

from runmanager.errors import RecordError, RunManagerError
from runmanager.records.files.paths import SweepPaths, files_below
from runmanager.records.settings.signature import short_names
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.sweep.sweep_record import PlannedCell, SweepRecord, read_sweep_record
from runmanager.results.tfevents.reader import is_event_file
from runmanager.tracking.tensorboard.event_writer import EventWriter
from runmanager.tracking.tensorboard.hparams import mixed_type_settings, session_start

__all__ = ["BoardServer", "ServedFolder", "SweepLogdir", "data_server", "serving_options"]

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


_OVERRIDES = "events.out.tfevents.0000000000.overrides"
"""A file next to the link to a run's own. TensorBoard reads it first, and of two equal tags uses the first one."""

_ATTEMPTS = ("attempts",)


class SweepLogdir:
    """Links to the event files of a sweep's runs, in one folder per run, updated by `refresh`.

    The linked files may still grow. Those of a program lie anywhere below its run's folder, apart from the files of
    earlier attempts.
    """

    def __init__(self, sweep: SweepPaths, folder: Path) -> None:
        """`folder` must be empty and is for this object alone; TensorBoard reads `root` in it and shows its name."""
        self.served = ServedFolder(folder, sweep.name)
        self.root = self.served.root
        self._sweep = sweep
        self._plan_version: tuple[int, int] | None = None
        self._cells: dict[str, Mapping[str, Any]] = {}
        self._names: dict[str, str] = {}
        self._linked: dict[str, tuple[str, list[Path]]] = {}  # the run's folder and its files, by short name
        self._adopted: set[str] = set()
        self._searched: set[str] = set()  # runs that had ended before they were searched

    @property
    def cells(self) -> Sequence[Mapping[str, Any]]:
        """The settings of all cells, started or not, at the last `refresh`."""
        return list(self._cells.values())

    @property
    def has_begun(self) -> bool:
        """Whether any run is linked."""
        return bool(self._linked)

    def refresh(self) -> None:
        """Link runs that have started since, and rename all if new cells require longer names.

        Raises `OSError`, and `RecordError` if the sweep's record is unreadable; the next call may succeed.
        """
        if self._read_cells():
            self._names = short_names(self._cells, lone=self._sweep.name)
        found = {name: events for run, name in self._names.items() if (events := self._events(run, name))}
        new = {run: name for run, name in self._names.items() if name in found and name not in self._linked}
        text_settings = mixed_type_settings(self.cells) if new else ()
        for run, name in new.items():
            self._link(run, name, found[name], self._overrides(run, text_settings))
        for name in self._linked.keys() - found.keys():  # last, so that renamed runs are always shown
            self.served.remove(name)
            del self._linked[name]

    def _read_cells(self) -> bool:
        """Read the settings of all cells, started or not; return whether they changed."""
        known = len(self._cells)
        path = self._sweep.record
        version = (path.stat().st_mtime_ns, path.stat().st_size) if path.exists() else None
        if is_new := version is not None and version != self._plan_version:
            plan = read_sweep_record(self._sweep)
            self._cells |= {} if plan is None else {cell.run: _axes_first(plan, cell) for cell in plan.kept}
            self._plan_version = version
        for run in run_names(self._sweep):
            if run not in self._cells:  # from an older plan, or from none
                try:
                    self._cells[run] = read_record(self._sweep.run(run)).settings
                except RecordError:
                    continue
        return is_new or len(self._cells) > known

    def _events(self, run: str, name: str) -> list[Path]:
        """Find the run's event files; searches only while it runs, or if they are not linked yet or have gone."""
        linked_run, linked = self._linked.get(name, ("", []))
        is_linked = linked_run == run and linked[0].exists()
        if is_linked and run in self._searched:
            return linked
        paths = self._sweep.run(run)
        if not paths.heartbeat.exists():
            self._searched.add(run)
        own = _regular(files_below(paths.root, is_event_file, [], without=_ATTEMPTS))
        events = own or self._original_events(run)
        if events and not (is_linked and events == linked):
            self._linked.pop(name, None)
        return events

    def _original_events(self, run: str) -> list[Path]:
        """Find the event files of an adopted run in its original folder; empty for any other run."""
        try:
            original = read_record(self._sweep.run(run)).adopted
        except RecordError:
            return []
        if not original:
            return []
        self._adopted.add(run)
        return _regular(files_below(Path(original), is_event_file, []))

    def _overrides(self, run: str, text_settings: Sequence[str]) -> Summary | None:
        """Build the summary to read before the run's own file: settings that must be text in all runs.

        The files of an adopted run may lack its settings, so it has all of them.
        """
        settings = self._cells[run]
        as_text = {name: str(settings[name]) for name in text_settings if settings.get(name) is not None}
        return session_start({**settings, **as_text}) if as_text or run in self._adopted else None

    def _link(self, run: str, name: str, events: list[Path], overrides: Summary | None) -> None:
        """Link a run's files under `name`, those of several folders in folders; they appear in one step."""
        parents = [each.parent for each in events]
        top = self._sweep.run(run).root if run not in self._adopted else os.path.commonpath(parents)
        with self.served.replacing(name) as folder:
            if overrides is not None:
                writer = EventWriter(folder, folder / _OVERRIDES)
                writer.summary(overrides)
                writer.close()
            for each in events:
                link = folder / each.relative_to(top)
                if link.parent != folder:
                    link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(each.absolute())
        self._linked[name] = run, events


def _regular(paths: Sequence[Path]) -> list[Path]:
    """Leave out pipes, which would block, and links, which may lead out of the run's folder."""
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _axes_first(plan: SweepRecord, cell: PlannedCell) -> dict[str, Any]:
    """Return all settings of a cell with the sweep's axes first, as in run names and columns."""
    settings = {**(plan.choices or {}), **plan.settings, **cell.choices_and_settings}
    return {**{name: settings[name] for name in plan.axes if name in settings}, **settings}


class ServedFolder:
    """Folders of event files below `root`, each of them a run of TensorBoard by its name.

    TensorBoard may read at any time, so nothing is written or deleted below `root`: files are moved in when they are
    complete, and folders are moved out before they are deleted.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """`folder` must be empty and is for this object alone; `root` is `name` in it, which TensorBoard shows."""
        self.root = folder / name
        self.root.mkdir()
        self._staging = folder / ".staging"
        self._removed = folder / ".removed"

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """Yield an empty folder to fill. At the end, its files are served under `name` in place of those before.

        A folder that is served stays, with the new files in it first: TensorBoard continues with a file that is added,
        but may take a folder that was gone for a moment for deleted.
        """
        if self._staging.exists():  # of a call that failed
            shutil.rmtree(self._staging)
        self._staging.mkdir()
        yield self._staging
        target = self.root / name
        if not target.exists():
            os.rename(self._staging, target)
            return
        new = _files_below(self._staging)
        old = [each for each in _files_below(target) if each not in new]
        for each in new:
            (target / each).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._staging / each, target / each)
        for each in old:
            (target / each).unlink()
        shutil.rmtree(self._staging)

    def remove(self, name: str) -> None:
        """Stop serving what is under `name`."""
        if self._removed.exists():  # of a call that failed
            shutil.rmtree(self._removed)
        os.rename(self.root / name, self._removed)
        shutil.rmtree(self._removed)


def _files_below(folder: Path) -> list[str]:
    return [os.path.relpath(f"{parent}/{name}", folder) for parent, _, names in os.walk(folder) for name in names]
