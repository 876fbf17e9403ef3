"""What this machine's processor is called. Loads no torch."""

import platform
from functools import cache
from pathlib import Path

__all__ = ["cpu_model"]


@cache
def cpu_model() -> str | None:
    """What the processor calls itself, None where it has no name."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or None
