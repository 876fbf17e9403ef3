"""The traceback of a program's error without the calls that led to the program."""

from pathlib import Path
from types import TracebackType

import hydra

import runmanager

__all__ = ["in_program"]

_OUTER = tuple(str(Path(str(package.__file__)).resolve().parent) for package in (runmanager, hydra))


def in_program(error: BaseException) -> BaseException:
    """Return the error with its traceback from the first call in the program on; whole if there is no such call."""
    first: TracebackType | None = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OUTER):
        first = first.tb_next
    return error if first is None else error.with_traceback(first)
