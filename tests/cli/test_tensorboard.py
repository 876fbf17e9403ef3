"""Tests of the command that starts TensorBoard: it serves the sweep's runs, at the address that it says."""

import http.client
import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from runmanager.cli.tensorboard import free_port
from runmanager.errors import UsageError
from runmanager.records.paths import SweepPaths

from .conftest import process_environment, process_words


@pytest.fixture
def written(sweep: SweepPaths) -> str:
    """The name of a run of the sweep that has a scalar in its event file."""
    run = sorted(sweep.runs.iterdir())[0]
    writer = EventFileWriter(str(run))
    value = Summary.Value(tag="train/loss", simple_value=0.5)
    writer.add_event(Event(wall_time=1.0, step=1, summary=Summary(value=[value])))
    writer.close()
    return run.name


@pytest.fixture
def server(sweep: SweepPaths, written: str, mortal: Callable) -> Iterator[subprocess.Popen[str]]:
    words = process_words("tensorboard", "grid", "--port", "0")
    with mortal(
        subprocess.Popen(
            words,
            cwd=sweep.root.parents[1],
            env=process_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    ) as process:
        yield process
        process.kill()


def test_serves_the_runs_at_the_address_it_says(server: subprocess.Popen[str], sweep: SweepPaths, written: str) -> None:
    assert server.stdout is not None and server.stderr is not None
    said = server.stdout.readline()
    address = re.search(r"http://localhost:(\d+)/", said)
    assert address is not None, said
    assert next(line for line in server.stderr if f"http://localhost:{address[1]}/" in line)
    connection = http.client.HTTPConnection("localhost", int(address[1]), timeout=60)
    tags: dict[str, dict[str, object]] = {}
    give_up_at = time.monotonic() + 60
    while not tags.get(written) and time.monotonic() < give_up_at:  # it reads the event files beside serving
        connection.request("GET", "/data/plugin/scalars/tags")
        tags = json.loads(connection.getresponse().read())
    assert {run: list(found) for run, found in tags.items()} == {written: ["train/loss"]}


def test_free_port_is_one_that_can_be_had() -> None:
    port = free_port("localhost", 0)
    assert free_port("localhost", port) == port
    assert free_port("localhost", None) >= 6006


def test_port_in_use_is_refused_and_passed_over() -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is not .*use --port 0"):
            free_port("localhost", port)


def test_host_elsewhere_is_refused() -> None:
    with pytest.raises(UsageError, match=r"`--host` must be an address of this machine, got .192\.0\.2\.1."):
        free_port("192.0.2.1", None)


def test_sweep_that_is_not_there_is_refused_before_anything_starts(command: Callable, tmp_path: Path) -> None:
    done = command("tensorboard", str(tmp_path / "nothing"))
    assert (done.status, done.out) == (2, "")
