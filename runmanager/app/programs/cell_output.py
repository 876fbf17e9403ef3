"""What a cell's process leaves in its run.log: its output, and an error's traceback from the program on."""

import io
import os
import sys
from pathlib import Path
from types import TracebackType

import hydra

import runmanager

_OUTER = tuple(str(Path(str(package.__file__)).resolve().parent) for package in (runmanager, hydra))


def in_program(error: BaseException) -> BaseException:
    """Return the error with its traceback from the first call in the program on; whole if there is no such call."""
    first: TracebackType | None = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OUTER):
        first = first.tb_next
    return error if first is None else error.with_traceback(first)


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
