"""Identity and life of processes, their limits and usable cores, and the variables that tell tasks apart."""

import math
import os
import re
import socket
from functools import cache
from pathlib import Path

import msgspec
import psutil

from runmanager.records.files.file_errors import Int64

RANKS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
"""Variables with the rank of a process and the number of ranks, as torchrun and MPI set them."""
TASKS = ("SLURM_PROCID", "SLURM_NTASKS")
"""The same of Slurm's tasks, which may be independent of one another."""
OF_TASK = re.compile(
    r"SLURM_(?:PROCID|LOCALID|NODEID|NPROCS|NTASKS\w*|(?:STEP_)?TASKS_PER_NODE|STEP_NUM_TASKS|TASK_PID|GTIDS)"
    r"|PMI\w?_.*|(?:OMPI|MV2)_COMM_WORLD_.*"
)
"""Variables of Slurm and MPI that say which of several tasks a process is."""

_CGROUPS = Path("/sys/fs/cgroup")
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
    import psutil  # late, here and below: it takes 10 ms of each command, and Linux needs none of it

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
    import psutil

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


def usable_core_time() -> float:
    """Return how much of the cores' time this process may use: that of its cores, less where a container limits it."""
    return min(float(usable_cores()), cpu_quota() or math.inf)


def cpu_quota(groups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Return the cores' time that the control groups of this process leave it (v1 and v2); None without a limit.

    `groups` is where they are mounted. Seen from a container, a process's own group may be the top one, whatever its
    path in `own`: all groups on the way up are looked at, and the smallest limit counts.
    """
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except (OSError, ValueError):
        lines = []
    quotas: list[float] = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in (groups / controllers, groups / "cpu") if controllers else (groups, groups / "unified"):
            folder = mount / path.strip("/")
            of_group = (_quota_of(each) for each in (folder, *folder.parents) if each.is_relative_to(mount))
            quotas += [quota for quota in of_group if quota is not None]
    return min(quotas, default=None)


def _quota_of(group: Path) -> float | None:
    """Return the limit of one control group in cores; None without a limit."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((group / name).read_text() for name in names).split()
            if quota != "max" and int(quota) > 0 and int(period) > 0:  # v1 has -1 for no limit
                return int(quota) / int(period)
        except (OSError, ValueError):
            continue
    return None


_TOO_LONG = 10**30  # bytes, to be printed with all digits
_MESSAGES = ("cannot allocate memory", "failed to map segment", "cannot apply additional memory protection")


_ROOM = 8  # processes and threads: what a command and its first run start at about the same time


def process_limit() -> str:
    """Describe the limit on this user's processes and threads if it is nearly reached; empty if not, or without one."""
    import resource  # imported late: Windows lacks it, and gets a clear error elsewhere

    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if most == resource.RLIM_INFINITY or os.getuid() == 0:  # the kernel exempts root
        return ""
    own = sum(
        each.info["num_threads"] or 1
        for each in psutil.process_iter(["uids", "num_threads"])
        if each.info["uids"] is not None and each.info["uids"].real == os.getuid()
    )
    return f"processes and threads are limited to {most} (ulimit -u)" if own + _ROOM > most else ""


def free_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that can be allocated without swapping, within the limit of a container (cgroup v2).

    Cached files of the container count as free, because the kernel evicts them first.
    """
    available: int = psutil.virtual_memory().available
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return available  # not in a container, or in one without a limit ("max")
    return min(available, max(0, limit - used + int(stat.get("inactive_file", 0))))


def format_gib(num_bytes: int) -> str:
    """Format a number of bytes: `21.3 GiB`."""
    if num_bytes >= _TOO_LONG:
        return f"about 10^{math.log10(num_bytes // 2**30):.0f} GiB"
    return f"{num_bytes / 2**30:,.1f} GiB"


def address_space_limit() -> str:
    """Describe the limit on this process's address space; empty if it has none."""
    import resource  # imported late: Windows lacks it, and gets a clear error elsewhere

    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return "" if most == resource.RLIM_INFINITY else f"address space is limited to {most / 2**30:.1f} GiB (ulimit -v)"


def is_out_of_memory_error(error: BaseException) -> bool:
    """Whether an import failed for want of memory, which the dynamic loader reports in its message only."""
    return isinstance(error, MemoryError) or any(message in str(error).lower() for message in _MESSAGES)
