"""Free memory of the host or container, and limits on what a user's processes may have together."""

import math
import os
from pathlib import Path

import psutil

__all__ = ["address_space_limit", "format_gib", "free_memory", "is_out_of_memory_error", "process_limit"]


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
