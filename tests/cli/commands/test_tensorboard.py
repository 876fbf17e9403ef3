"""Tests of `runmanager tensorboard`."""

import http.client
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tensorboard.backend.event_processing import io_wrapper
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from runmanager.cli.commands.tensorboard import _refresh
from runmanager.cli.serving.local_server import free_port
from runmanager.errors import UsageError
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.storage.versioned_file import encode_record
from runmanager.tracking.tensorboard.board_server import BoardServer, _keep_reading, serving_options
from runmanager.tracking.tensorboard.logdir import SweepLogdir, SweepSummaryWriter

from ..conftest import process_environment, process_words

DEADLINE_SECONDS = 100


def write_scalar(sweep: SweepPaths, run: str) -> None:
    writer = EventFileWriter(str(sweep.run(run).root))
    value = Summary.Value(tag="train/loss", simple_value=0.5)
    writer.add_event(Event(wall_time=1.0, step=1, summary=Summary(value=[value])))
    writer.close()


@pytest.fixture(params=["fast", "python"])
def server(
    sweep: SweepPaths, mortal: Callable, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[subprocess.Popen[str]]:
    """The command on the sweep with each of TensorBoard's readers; its temporary folders are in `tmp_path/temporary`.

    Its standard error goes to `tmp_path/stderr`.
    """
    write_scalar(sweep, run_names(sweep)[0])
    (tmp_path / "temporary").mkdir()
    reader = {} if request.param == "fast" else {"TENSORBOARD_DATA_SERVER_BINARY": ""}
    with (
        (tmp_path / "stderr").open("w") as stderr,
        mortal(
            subprocess.Popen(
                process_words("tensorboard", "grid", "--port", "0"),
                cwd=sweep.root.parents[1],
                env=process_environment(TMPDIR=str(tmp_path / "temporary"), **reader),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        ) as process,
    ):
        yield process
        process.kill()


class Page:
    """What the server answers; a test fails, with the server's errors, if an awaited answer does not come."""

    def __init__(self, server: subprocess.Popen[str], stderr: Path) -> None:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = re.search(r"http://localhost:(\d+)/", line)
        assert address is not None, (line, stderr.read_text())
        self._connection = http.client.HTTPConnection("localhost", int(address[1]), timeout=DEADLINE_SECONDS)
        self._stderr = stderr

    def get(self, path: str) -> Any:
        self._connection.request("GET", path)
        return json.loads(self._connection.getresponse().read())

    def wait_for(self, condition: Callable[[], bool], shown: Callable[[], object]) -> None:
        """Ask again until the condition holds: event files are read in the background."""
        give_up_at = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < give_up_at, f"shown: {shown()}\nstderr: {self._stderr.read_text()}"
            time.sleep(0.05)  # leaves the core to the reader

    def scalars(self) -> dict[str, list[str]]:
        return {run: list(tags) for run, tags in self.get("/data/plugin/scalars/tags").items() if tags}

    def sweeps(self) -> list[str]:
        return [run for run in self.get("/data/runs") if run.startswith("sweep")]

    def is_drawn(self, sweep: str) -> bool:
        texts, images = self.get("/data/plugin/text/tags"), self.get("/data/plugin/images/tags")
        return "across_runs/answers" in texts.get(sweep, ()) and bool(images.get(sweep))

    def close(self) -> None:
        self._connection.close()


def test_runs_are_served_at_the_printed_address_until_ctrl_c(
    sweep: SweepPaths, server: subprocess.Popen[str], tmp_path: Path
) -> None:
    first, second, *_ = run_names(sweep)
    one, other = (name.rpartition("-")[0] for name in (first, second))
    page = Page(server, tmp_path / "stderr")
    page.wait_for(lambda: page.scalars() == {one: ["train/loss"]}, page.scalars)
    write_scalar(sweep, second)  # a run that begins while the server runs
    page.wait_for(lambda: page.scalars() == {one: ["train/loss"], other: ["train/loss"]}, page.scalars)
    page.wait_for(lambda: page.sweeps() == ["sweep of 4 runs"] and page.is_drawn("sweep of 4 runs"), page.sweeps)
    record = read_record(sweep.run(second))
    going = msgspec.structs.replace(record, status=Status.RUNNING, owner=ProcessIdentity.current(), reason=None)
    replace_file(sweep.run(second).record, encode_record(going))
    now = "sweep, 3 of 4 runs ended"  # the other name goes once this one is there
    page.wait_for(lambda: page.sweeps() == [now] and page.is_drawn(now), page.sweeps)
    page.close()
    server.send_signal(signal.SIGINT)
    assert server.wait(60) == 130
    assert not list((tmp_path / "temporary").glob("runmanager-*"))


def test_free_port_can_be_bound() -> None:
    port = free_port("localhost", 0)
    assert free_port("localhost", port) == port
    assert free_port("localhost", None) >= 6006


def test_a_used_port_is_rejected_or_skipped() -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is not .*use --port 0"):
            free_port("localhost", port)


def test_an_ipv6_address_is_accepted() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(UsageError, match=f"port {port} is not .*use --port 0"):
                free_port("::1", port)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert free_port("::1", 0) > 0


def test_a_port_used_on_localhost_is_skipped_for_any_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # TensorBoard would reject it
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is not"):
            free_port("127.0.0.2", port)


def test_an_address_of_another_machine_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"`--host` must be an address of this machine, got .192\.0\.2\.1."):
        free_port("192.0.2.1", None)


def test_a_missing_sweep_is_rejected_before_the_server_starts(command: Callable, tmp_path: Path) -> None:
    done = command("tensorboard", str(tmp_path / "nothing"))
    assert (done.status, done.out) == (2, "")


def test_a_port_taken_before_the_start_is_told(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as taken, BoardServer() as board:
        for port, is_free in ((taken.getsockname()[1], False), (free_port("localhost", 0), True)):
            options = serving_options(tmp_path, title="grid", host="localhost", port=port, reload_seconds=5)
            assert board.serve(options, data_server="") is is_free


def test_a_run_that_goes_when_it_was_just_found_does_not_stop_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in ((EventMultiplexer, "AddRun"), (RawEventFileLoader, "Load")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # undone with the test
    _keep_reading()
    (tmp_path / "stays").mkdir()
    EventFileWriter(str(tmp_path / "stays")).close()
    reader = EventMultiplexer().Reload()
    found = [str(tmp_path / name) for name in ("gone", "stays")]
    monkeypatch.setattr(io_wrapper, "GetLogdirSubdirectories", lambda _: found)
    reader.AddRunsFromDirectory(str(tmp_path)).Reload()
    assert list(reader.Runs()) == ["stays"]


def test_a_failing_figure_is_reported_once_and_the_server_stays(
    sweep: SweepPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scalar(sweep, run_names(sweep)[0])
    (tmp_path / "served").mkdir()
    runs = SweepLogdir(sweep, tmp_path / "served")
    monkeypatch.setattr("runmanager.results.figures.catalog.speedup_figures", lambda comparison: 1 // 0)
    shown, faults = SweepSummaryWriter(sweep, runs, clock=iter(range(0, 10**6, 1000)).__next__), set[str]()
    for _ in range(2):
        _refresh(runs, shown, faults)
    assert capsys.readouterr().err.count("could not be shown (ZeroDivisionError: ") == 1
    assert len(list(runs.root.iterdir())) == 1
