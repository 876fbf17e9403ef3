"""The model name of this machine's CPU. Loads no torch."""

import platform
from functools import cache
from pathlib import Path


@cache
def cpu_model() -> str | None:
    """Return the CPU's model name, None if it is unknown."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or None
