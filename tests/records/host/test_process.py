"""Identity of processes: pids are reused, and zombies are dead."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from runmanager.records.host.process import ProcessIdentity, cpu_quota

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def test_current_process_is_alive() -> None:
    current = ProcessIdentity.current()
    assert current.pid == os.getpid()
    assert current.is_alive() is True
    assert ProcessIdentity.current() == current


@pytest.mark.skipif(not BOOT_ID.exists(), reason="the system has no identity of its boot")
def test_the_boot_is_that_of_the_system_and_not_of_its_clock() -> None:
    """A time of boot is counted back from the clock, and moves where that is set."""
    assert ProcessIdentity.current().boot_id == BOOT_ID.read_text().strip()


def test_fork_has_another_identity() -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            os.write(writing, msgspec.json.encode(ProcessIdentity.current()))
        finally:
            os._exit(0)  # it must never continue as a second test process
    os.close(writing)  # otherwise a child that fails would block the read
    os.waitpid(pid, 0)
    child = msgspec.json.decode(os.read(reading, 10_000), type=ProcessIdentity)
    os.close(reading)
    assert child.pid == pid
    assert child.is_alive() is False


def test_killed_process_is_dead_even_as_a_zombie(
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
        ({"start_ticks": 1}, False),  # the pid belongs to another process now
        ({"boot_id": "the boot before"}, False),
        ({"host": "elsewhere"}, None),
        ({"host": "elsewhere", "boot_id": "of elsewhere"}, None),
    ],
)
def test_pid_alone_does_not_identify_a_process(change: dict[str, Any], alive: bool | None) -> None:
    assert msgspec.structs.replace(ProcessIdentity.current(), **change).is_alive() is alive


def test_command_name_may_have_spaces_and_parentheses(start_process: Callable[[], Any]) -> None:
    renames = "open('/proc/self/comm', 'wb').write(b') Z \\xff (')"  # and bytes that are not UTF-8
    current = ProcessIdentity.current()
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
    answer = os.read(reading, 100)
    os.close(reading)
    assert answer == b"same"
    assert current.is_alive() is True


V2 = {"cpu.max": "150000 100000\n"}
V1 = {"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}
NO_LIMIT = {"cpu.max": "max 100000\n"}


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {"": V2}, 1.5),
        ("0::/job/step\n", {"": NO_LIMIT, "job": V2, "job/step": NO_LIMIT}, 1.5),
        ("0::/job/step\n", {"job": {"cpu.max": "300000 100000"}, "job/step": V2}, 1.5),
        ("0::/seen/from/outside\n", {"": V2}, 1.5),
        ("4:memory:/\n1:cpu,cpuacct:/job\n", {"cpu,cpuacct/job": V1}, 0.5),
        ("1:cpuacct,cpu:/job\n", {"cpu": V1}, 0.5),
        ("1:cpu:/\n0::/\n", {"cpu": {**V1, "cpu.cfs_quota_us": "-1"}, "unified": NO_LIMIT}, None),
        ("1:cpuset:/\n", {"": V2}, None),
        ("nonsense\n0::/\n", {"": {"cpu.max": "x y"}}, None),
        ("0::/\n", {"": {"cpu.max": "0 0"}}, None),
    ],
)
def test_the_limit_of_a_container(
    tmp_path: Path, own: str, files: dict[str, dict[str, str]], quota: float | None
) -> None:
    for folder, texts in files.items():
        (tmp_path / "groups" / folder).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (tmp_path / "groups" / folder / name).write_text(text)
    (tmp_path / "own").write_text(own)
    assert cpu_quota(tmp_path / "groups", tmp_path / "own") == quota
    assert cpu_quota(tmp_path / "groups", tmp_path / "missing") is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system pins no processes")
def test_a_pinned_process_may_use_fewer_cores() -> None:
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
    code += "from runmanager.records.host import process; print(process.usable_cores(), process.usable_core_time())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    cores, share = done.stdout.split()
    assert cores == "1" and 0 < float(share) <= 1
