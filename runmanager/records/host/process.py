"""Which process owns a run, whether it still lives, and how many cores a process may run on."""

import os
import socket
from functools import cache
from pathlib import Path

import msgspec
import psutil

__all__ = ["ProcessIdentity", "usable_cores"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process, told apart from any other that ever had or will have its pid.

    `start_ticks` counts from the host's boot (field 22 of /proc/PID/stat), so it does not move with the clock.
    """

    pid: int
    start_ticks: int
    boot_id: str
    host: str

    @classmethod
    def current(cls) -> "ProcessIdentity":
        """The identity of the calling process."""
        pid = os.getpid()
        return cls(pid=pid, start_ticks=_start_ticks(pid) or 0, boot_id=_boot_id(), host=socket.gethostname())

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """The identity of a process of this host; None if it is gone."""
        ticks = _start_ticks(pid)
        return None if ticks is None else cls(pid, ticks, _boot_id(), socket.gethostname())

    def is_alive(self) -> bool | None:
        """Whether the process lives; None where that cannot be known from here: it ran on another host."""
        if self.host != socket.gethostname():
            return None
        if self.boot_id != _boot_id():
            return False
        return _start_ticks(self.pid) == self.start_ticks


@cache
def _boot_id() -> str:
    if _BOOT_ID.exists():
        return _BOOT_ID.read_text().strip()
    return str(int(psutil.boot_time()))


def _start_ticks(pid: int) -> int | None:
    """When the process began, or None if there is none, or only its zombie."""
    try:
        # The command's name stands in parentheses and may hold spaces and parentheses itself.
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()  # a name may be any bytes
        return None if state in b"ZX" else int(fields[18])
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time() * 100)
    except psutil.Error:
        return None


def usable_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
