"""How much memory a process may still take on this host, its container's limit among what decides."""

from pathlib import Path

import psutil

__all__ = ["free_memory", "in_gib"]


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


def in_gib(num_bytes: int) -> str:
    """A size in words: `21.3 GiB`."""
    return f"{num_bytes / 2**30:,.1f} GiB"
