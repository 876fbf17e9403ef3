"""Tests of `runmanager tensorboard`."""

import http.client
import json
import re
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from runmanager.cli.commands.tensorboard import _launch, _refresh, free_port
from runmanager.errors import UsageError
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.storage.versioned_file import encode_record
from runmanager.tracking.tensorboard.logdir import SweepLogdir
from runmanager.tracking.tensorboard.sweep_summary import SweepSummaryWriter

from ..conftest import process_environment, process_words


def write_scalar(sweep: SweepPaths, run: str) -> None:
    writer = EventFileWriter(str(sweep.run(run).root))
    value = Summary.Value(tag="train/loss", simple_value=0.5)
    writer.add_event(Event(wall_time=1.0, step=1, summary=Summary(value=[value])))
    writer.close()


@pytest.fixture
def server(sweep: SweepPaths, mortal: Callable, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command on the sweep, with its temporary folders under `tmp_path/temporary`."""
    (tmp_path / "temporary").mkdir()
    with mortal(
        subprocess.Popen(
            process_words("tensorboard", "grid", "--port", "0"),
            cwd=sweep.root.parents[1],
            env=process_environment(TMPDIR=str(tmp_path / "temporary")),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    ) as process:
        yield process
        process.kill()


def test_runs_are_served_at_the_printed_address_until_ctrl_c(
    sweep: SweepPaths, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first, second, *_ = run_names(sweep)
    write_scalar(sweep, first)
    server = request.getfixturevalue("server")
    line = server.stdout.readline()
    address = re.search(r"http://localhost:(\d+)/", line)
    assert address is not None, line
    connection = http.client.HTTPConnection("localhost", int(address[1]), timeout=60)

    def shown(num_runs: int) -> dict[str, list[str]]:
        tags: dict[str, dict[str, object]] = {}
        give_up_at = time.monotonic() + 60
        while (
            sum(map(bool, tags.values())) < num_runs and time.monotonic() < give_up_at
        ):  # event files are read in the background
            connection.request("GET", "/data/plugin/scalars/tags")
            tags = json.loads(connection.getresponse().read())
            time.sleep(0.05)  # leaves the core to the reader
        return {run: list(found) for run, found in tags.items()}

    one, other = (name.rpartition("-")[0] for name in (first, second))
    assert shown(1) == {one: ["train/loss"]}
    write_scalar(sweep, second)  # a run that begins while the server runs
    assert shown(2) == {one: ["train/loss"], other: ["train/loss"]}

    def runs_with(num_ended: str) -> list[str]:
        """The runs, once the sweep itself is among them with its figures and tables."""
        wanted, runs = f"sweep{num_ended}", list[str]()
        give_up_at = time.monotonic() + 60
        while time.monotonic() < give_up_at:
            answers = []
            for path in ("/data/runs", "/data/plugin/text/tags", "/data/plugin/images/tags"):
                connection.request("GET", path)
                answers.append(json.loads(connection.getresponse().read()))
            runs, texts, images = answers
            if "across_runs/answers" in texts.get(wanted, ()) and images.get(wanted):
                break
            time.sleep(0.05)
        return [run for run in runs if run.startswith("sweep")]

    assert runs_with(" of 4 runs") == ["sweep of 4 runs"]
    record = read_record(sweep.run(second))
    going = msgspec.structs.replace(record, status=Status.RUNNING, owner=ProcessIdentity.current(), reason=None)
    replace_file(sweep.run(second).record, encode_record(going))
    assert runs_with(", 3 of 4 runs ended") == ["sweep, 3 of 4 runs ended"]
    connection.close()
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


def test_a_port_taken_before_the_start_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a library bundled with TensorBoard warns on import
        from tensorboard import default, program

        default.get_plugins()
    tried: list[int] = []

    def launch(server: program.TensorBoard) -> None:
        tried.append(server.flags.port)
        if len(tried) == 1:
            taker.bind(("localhost", tried[0]))
            taker.listen()
            raise program.TensorBoardPortInUseError("taken")

    monkeypatch.setattr(program.TensorBoard, "launch", launch)
    with socket.socket() as taker:
        assert _launch(tmp_path, title="grid", host="localhost", port=None) == tried[1] != tried[0]


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
