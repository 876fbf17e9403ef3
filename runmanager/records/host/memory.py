"""How much memory a process may still take on this host, and what limits it."""

from pathlib import Path

import psutil

__all__ = ["address_space_limit", "format_gib", "free_memory", "is_out_of_memory_error"]

_SIGNS = ("cannot allocate memory", "failed to map segment", "cannot apply additional memory protection")


def free_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be taken without swapping: what the machine has, and of a container (cgroup v2) what it leaves.

    A container's cached files count as free, as the kernel gives them up first.
    """
    available: int = psutil.virtual_memory().available
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return available  # no container, or one without a limit ("max")
    return min(available, max(0, limit - used + int(stat.get("inactive_file", 0))))


def format_gib(num_bytes: int) -> str:
    """A size in words: `21.3 GiB`."""
    return f"{num_bytes / 2**30:,.1f} GiB"


def address_space_limit() -> str:
    """How much a process of this one's may map; empty where there is no limit."""
    import resource  # late: Windows has none, and is to be refused with a clear line

    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return "" if most == resource.RLIM_INFINITY else f"address space is limited to {most / 2**30:.1f} GiB (ulimit -v)"


def is_out_of_memory_error(error: BaseException) -> bool:
    """Whether an import failed for want of memory, which a library's loader tells in words alone."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _SIGNS)
