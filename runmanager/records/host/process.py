"""Identity and life of processes, and the cores that they may use."""

import os
import socket
from functools import cache
from pathlib import Path

import msgspec
import psutil

from runmanager.records.files.whole_numbers import Int64

__all__ = ["ProcessIdentity", "usable_cores"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ProcessIdentity(msgspec.Struct, frozen=True):
    """Identity of a process, distinct from all others that have had or will have the same pid.

    `start_ticks` counts from the host's boot (field 22 of /proc/PID/stat), so it does not move with the clock.
    """

    pid: Int64
    start_ticks: Int64
    boot_id: str
    host: str

    @classmethod
    def current(cls) -> "ProcessIdentity":
        """Return the identity of the calling process."""
        pid = os.getpid()
        return cls(pid=pid, start_ticks=_start_ticks(pid) or 0, boot_id=_boot_id(), host=socket.gethostname())

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """Return the identity of a process of this host; None if it is gone."""
        ticks = _start_ticks(pid)
        return None if ticks is None else cls(pid, ticks, _boot_id(), socket.gethostname())

    def is_alive(self) -> bool | None:
        """Whether the process is alive; None if it runs on another host, where this cannot be seen."""
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
    """Return when the process began; None if it does not exist or is a zombie."""
    try:
        # The name of the command is in parentheses, and may contain spaces, parentheses and any bytes.
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
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
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
