"""Tests of the command that starts TensorBoard: it serves the sweep's runs, at the address that it says."""

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
from runmanager.tracking.tensorboard.logdir import ServedRuns
from runmanager.tracking.tensorboard.sweep_summary import ServedSweep

from ..conftest import process_environment, process_words


def write_scalar(sweep: SweepPaths, run: str) -> None:
    writer = EventFileWriter(str(sweep.run(run).root))
    value = Summary.Value(tag="train/loss", simple_value=0.5)
    writer.add_event(Event(wall_time=1.0, step=1, summary=Summary(value=[value])))
    writer.close()


@pytest.fixture
def server(sweep: SweepPaths, mortal: Callable, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command on the sweep, with folders of its own under `tmp_path/temporary`."""
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


def test_serves_the_runs_at_the_address_it_says_until_ctrl_c(
    sweep: SweepPaths, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first, second, *_ = run_names(sweep)
    write_scalar(sweep, first)
    server = request.getfixturevalue("server")
    said = server.stdout.readline()
    address = re.search(r"http://localhost:(\d+)/", said)
    assert address is not None, said
    connection = http.client.HTTPConnection("localhost", int(address[1]), timeout=60)

    def shown(num_runs: int) -> dict[str, list[str]]:
        tags: dict[str, dict[str, object]] = {}
        give_up_at = time.monotonic() + 60
        while sum(map(bool, tags.values())) < num_runs and time.monotonic() < give_up_at:  # it reads beside serving
            connection.request("GET", "/data/plugin/scalars/tags")
            tags = json.loads(connection.getresponse().read())
            time.sleep(0.05)  # between two looks: who reads has the same core
        return {run: list(found) for run, found in tags.items()}

    one, other = (name.rpartition("-")[0] for name in (first, second))
    assert shown(1) == {one: ["train/loss"]}
    write_scalar(sweep, second)  # a run that begins meanwhile
    assert shown(2) == {one: ["train/loss"], other: ["train/loss"]}

    def runs_with(num_ended: str) -> list[str]:
        """The runs, once the sweep is among them under that name, with its figures and tables."""
        wanted, runs = f"sweep{num_ended}", list[str]()
        give_up_at = time.monotonic() + 60
        while time.monotonic() < give_up_at:
            asked = []
            for path in ("/data/runs", "/data/plugin/text/tags", "/data/plugin/images/tags"):
                connection.request("GET", path)
                asked.append(json.loads(connection.getresponse().read()))
            runs, texts, images = asked
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


def test_free_port_is_one_that_can_be_had() -> None:
    port = free_port("localhost", 0)
    assert free_port("localhost", port) == port
    assert free_port("localhost", None) >= 6006


def test_port_in_use_is_refused_and_passed_over() -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is not .*use --port 0"):
            free_port("localhost", port)


def test_an_address_of_ipv6_is_one_to_listen_on() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(UsageError, match=f"port {port} is not .*use --port 0"):
                free_port("::1", port)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert free_port("::1", 0) > 0


def test_a_port_that_only_localhost_uses_is_passed_over_for_any_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # TensorBoard would refuse it
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is not"):
            free_port("127.0.0.2", port)


def test_host_elsewhere_is_refused() -> None:
    with pytest.raises(UsageError, match=r"`--host` must be an address of this machine, got .192\.0\.2\.1."):
        free_port("192.0.2.1", None)


def test_sweep_that_is_not_there_is_refused_before_anything_starts(command: Callable, tmp_path: Path) -> None:
    done = command("tensorboard", str(tmp_path / "nothing"))
    assert (done.status, done.out) == (2, "")


def test_a_port_that_another_takes_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorBoard's own copy of a library warns when it is imported
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


def test_a_figure_that_fails_is_said_once_and_ends_nothing(
    sweep: SweepPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scalar(sweep, run_names(sweep)[0])
    (tmp_path / "served").mkdir()
    runs = ServedRuns(sweep, tmp_path / "served")
    monkeypatch.setattr("runmanager.results.figures.catalog.speedups_figure", lambda comparison: 1 // 0)
    shown, faults = ServedSweep(sweep, runs, clock=iter(range(0, 10**6, 1000)).__next__), set[str]()
    for _ in range(2):
        _refresh(runs, shown, faults)
    assert capsys.readouterr().err.count("could not be drawn (ZeroDivisionError: ") == 1
    assert len(list(runs.root.iterdir())) == 1
