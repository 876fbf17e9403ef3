"""The work of a job: what its process calls."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Work:
    """A picklable function and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


def do_work(work: Work) -> Any:
    """Call the function; return what it returns, and raise what it raises."""
    return work.function(*work.arguments)
