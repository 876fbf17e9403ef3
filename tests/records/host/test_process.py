"""Who owns a run, and whether it still lives: pids come again, and zombies are dead."""

import os
import signal
from collections.abc import Callable
from typing import Any

import msgspec
import psutil
import pytest

from runmanager.records.host.process import ProcessIdentity


def test_this_process_lives() -> None:
    me = ProcessIdentity.current()
    assert me.pid == os.getpid()
    assert me.is_alive() is True
    assert ProcessIdentity.current() == me


def test_a_fork_is_somebody_else() -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            os.write(writing, msgspec.json.encode(ProcessIdentity.current()))
        finally:
            os._exit(0)  # whatever went wrong, it must not go on as a second process of tests
    os.close(writing)  # or a child that says nothing would be waited for for ever
    os.waitpid(pid, 0)
    child = msgspec.json.decode(os.read(reading, 10_000), type=ProcessIdentity)
    os.close(reading)
    assert child.pid == pid
    assert child.is_alive() is False


def test_a_process_is_dead_once_killed_even_as_a_zombie(
    start_process: Callable[[], Any], wait_for: Callable[..., None]
) -> None:
    other = start_process()
    assert other.identity.pid == other.process.pid
    assert other.identity.is_alive() is True
    other.process.kill()
    wait_for(lambda: psutil.Process(other.process.pid).status() == psutil.STATUS_ZOMBIE, "the zombie")
    assert other.identity.is_alive() is False
    other.end()
    assert other.identity.is_alive() is False


@pytest.mark.parametrize(
    ("change", "alive"),
    [
        ({"start_ticks": 1}, False),  # the pid was given to another process since
        ({"boot_id": "the boot before"}, False),
        ({"host": "elsewhere"}, None),
        ({"host": "elsewhere", "boot_id": "of elsewhere"}, None),
    ],
)
def test_a_living_pid_is_not_enough(change: dict[str, Any], alive: bool | None) -> None:
    assert msgspec.structs.replace(ProcessIdentity.current(), **change).is_alive() is alive


def test_a_name_with_spaces_and_parentheses_is_no_obstacle(start_process: Callable[[], Any]) -> None:
    renames = "open('/proc/self/comm', 'wb').write(b') Z \\xff (')"  # and bytes that are not UTF-8
    me_then = ProcessIdentity.current()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            before = ProcessIdentity.current()
            exec(renames)
            os.write(writing, b"same" if before == ProcessIdentity.current() and before.is_alive() else b"lost")
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    said = os.read(reading, 100)
    os.close(reading)
    assert said == b"same"
    assert me_then.is_alive() is True
