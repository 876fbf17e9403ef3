"""This machine's processor: what it is called, and how many of its cores may be used. Loads no torch."""

import os
import platform
from functools import cache
from pathlib import Path

__all__ = ["cpu_model", "usable_cores"]


@cache
def cpu_model() -> str | None:
    """What the processor calls itself, None where it has no name."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or None


def usable_cores() -> int | None:
    """The cores that this process may use, None where nobody says."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
