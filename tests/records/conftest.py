"""Fixtures for the tests of records: other processes, records, races."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status

from ..processes import wait_until

PRINT_IDENTITY = """
import signal, sys, msgspec
from runmanager.records.host.process import ProcessIdentity
signal.alarm(120)  # it must not outlive a failed test
print(msgspec.json.encode(ProcessIdentity.current()).decode(), flush=True)
sys.stdin.read()
"""


class OtherProcess:
    """A process that lives until `end`, with its identity."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRINT_IDENTITY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.identity = msgspec.json.decode(self.process.stdout.readline(), type=ProcessIdentity)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(autouse=True)
def importable_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes in other folders import the package of this checkout, installed or not."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])))


@pytest.fixture
def start_process() -> Iterator[Callable[[], OtherProcess]]:
    started: list[OtherProcess] = []

    def start() -> OtherProcess:
        started.append(OtherProcess())
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture(scope="session")
def dead() -> ProcessIdentity:
    """The identity of a process that is gone."""
    other = OtherProcess()
    other.end()
    return other.identity


@pytest.fixture
def far(dead: ProcessIdentity) -> ProcessIdentity:
    """The identity of a process on another host, whose life cannot be seen here."""
    return msgspec.structs.replace(dead, host="elsewhere", boot_id="another")


@pytest.fixture(scope="session")
def record() -> Callable[..., RunRecord]:
    """Make the record of a running run of this process, with other fields on request."""

    def make(**fields: Any) -> RunRecord:
        usual: dict[str, Any] = {
            "name": "lr=0.1-01234567",
            "signature": "01234567" * 8,
            "status": Status.RUNNING,
            "config": {"lr": 0.1},
            "owner": ProcessIdentity.current(),
        }
        return RunRecord(**{**usual, **fields})

    return make


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., None]:
    """Wait until a condition holds; the test fails after a deadline."""

    return partial(wait_until, seconds=60.0)


@pytest.fixture
def race(tmp_path: Path, wait_for: Callable[..., None]) -> Iterator[Callable[..., list[list[str]]]]:
    """Run one script in many processes at the same time and return the answers of each.

    The script defines `take(number) -> str`; each process prints its answers for 0 … rounds - 1 and then stays alive
    until all have answered.
    """
    frame = """
import signal, sys
signal.alarm(120)
{script}
print("ready", flush=True)
sys.stdin.readline()
for number in range({rounds}):
    print(take(number), flush=True)
sys.stdin.readline()
"""
    processes: list[subprocess.Popen[str]] = []

    def run(script: str, *, num_processes: int = 8, rounds: int = 20) -> list[list[str]]:
        code = frame.format(script=script, rounds=rounds)
        for _ in range(num_processes):
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
                )
            )
        for each in processes:
            assert each.stdout is not None and each.stdout.readline() == "ready\n"
        for each in processes:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        answers = []
        for each in processes:
            assert each.stdout is not None
            answers.append([each.stdout.readline().strip() for _ in range(rounds)])
        return answers

    yield run
    for each in processes:
        each.kill()
        each.communicate()
