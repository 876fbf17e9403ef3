"""Names and directions of the metrics that a program logs; `define_metric` declares a direction. Loads no torch."""

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from runmanager.errors import UsageError
from runmanager.records.run.metric_names import is_larger_better, parse_better
from runmanager.text import hidden_character

if TYPE_CHECKING:
    from runmanager.records.storage.run_folder import RunFolder

_lock = threading.Lock()
_declared: dict[str, str] = {}
_active: "weakref.WeakSet[RunDirections]" = weakref.WeakSet()


def define_metric(name: str, *, better: str) -> None:
    """Declare whether smaller (`min`) or larger (`max`) values of metric `name` are better.

    It holds for the runs of this process that are active or begin later. Without it the words of the name decide, as
    `loss` or `f1`. Raises `UsageError` for another direction, or for a name that cannot be logged.
    """
    check_name(name)
    direction = parse_better(better)
    with _lock:
        _declared[name] = direction
        active = list(_active)
    for run in active:
        if run.is_own:
            run.update()


def declared_directions() -> dict[str, str]:
    """Return the directions declared so far, `min` or `max` by name."""
    with _lock:
        return dict(_declared)


def larger_is_better(name: str) -> bool:
    """Return whether larger values of metric `name` are better. Raises `UsageError` if that is not known."""
    known = is_larger_better(name, declared_directions())
    if known is None:
        raise UsageError(
            f"It must be known whether smaller or larger values of a monitored metric are better, got {name!r}, whose "
            f"name does not say it; call runmanager.define_metric({name!r}, better=…) with min or max first."
        )
    return known


def check_name(name: Any) -> None:
    """Raise `UsageError` unless `name` is text that a metric can have as its name, and that conditions can name.

    It is of visible characters, not blank, and without backticks and outer spaces.
    """
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"A metric's name must be text of one line, and not blank, got {name!r}.")
    if hidden := hidden_character(name):
        raise UsageError(f"A metric's name must be of visible characters, got {name!r} with {hidden}; leave it out.")
    if "`" in name or name != name.strip():
        raise UsageError(f"A metric's name must be without backticks and outer spaces, got {name!r}.")


class RunDirections:
    """Keeps the declared directions in a run's record.

    Only the thread that began the run writes them when they are declared; what other threads declare is written at
    the next `update`, as two threads may not write one record at the same time.
    """

    def __init__(self, folder: "RunFolder") -> None:
        self._folder = folder
        self._thread = threading.get_ident()
        self._process = os.getpid()
        with _lock:
            _active.add(self)
        self.update()

    @property
    def is_own(self) -> bool:
        """Whether this is the thread that began the run."""
        return (os.getpid(), threading.get_ident()) == (self._process, self._thread)

    def update(self) -> None:
        """Write the directions that the record lacks, unless the run has ended."""
        stored = self._folder.record.better or {}
        better = stored | declared_directions()
        if better != stored and self._folder.is_ours:
            self._folder.write(better=better)
