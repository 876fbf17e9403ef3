"""The output of a cell's process, in its run.log."""

import io
import os
import sys
from pathlib import Path

__all__ = ["send_output_to"]


def send_output_to(path: Path) -> None:
    """Redirect the output of this process and its children to the run's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # in place of the terminal's encoding
