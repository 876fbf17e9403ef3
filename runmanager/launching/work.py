"""The work of a job: what its process calls."""

import importlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from runmanager.errors import ConfigurationError
from runmanager.launching.hydra_internals import keep_imported_main_quiet
from runmanager.launching.local.multiprocessing_internals import interpreter_state, restore_interpreter_state

__all__ = ["TaskReference", "Work", "do_sent_work", "do_work", "send_work"]


@dataclass(frozen=True)
class Work:
    """A picklable function and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


def do_work(work: Work) -> Any:
    """Call the function; return what it returns, and raise what it raises."""
    return work.function(*work.arguments)


def send_work(work: Work) -> tuple[Mapping[str, Any], bytes]:
    """Return the arguments of `do_sent_work` that do this work as the driver would, with its folder and main module."""
    return interpreter_state(), pickle.dumps(work)


def do_sent_work(driver_state: Mapping[str, Any], work: bytes) -> Any:
    """Restore the driver's state in the run's own process, and do the pickled `Work`."""
    os.register_at_fork(after_in_child=_block_termination)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a supervisor may ignore it, by inheritance; the task may handle it
    keep_imported_main_quiet()
    restore_interpreter_state(driver_state)
    return do_work(pickle.loads(work))  # noqa: S301  # what the driver sent


def _block_termination() -> None:
    # torch gives a loader's workers a handler that makes them die of a SIGTERM that is not their parent's. A run that
    # should end after its epoch would fail. When the run is over, its whole group is killed.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


@dataclass(frozen=True)
class TaskReference:
    """A task as module and qualified name, or pickled if it is not found there: an object, a function in a function.

    `whitelist` is what its configuration may name as a `_target_`, for Hydra 1.4; None: the application says nothing.
    """

    module: str = ""
    name: str = ""
    pickled: bytes = b""
    whitelist: Any = None

    @classmethod
    def of(cls, task: Callable[..., Any], *, whitelist: Any = None) -> "TaskReference":
        """Return a reference to a task. Raises `ConfigurationError` for one that cannot be sent to another process."""
        module, name = getattr(task, "__module__", ""), getattr(task, "__qualname__", "")
        if name and _find(module, name) is not None:
            return cls(module, name, whitelist=whitelist)
        try:
            return cls(pickled=_pickle(task), whitelist=whitelist)
        except Exception as error:
            raise ConfigurationError(
                [f"The task must be a function of a module, got {task!r}, which cannot be sent: {error}."]
            ) from error

    def load(self) -> Any:
        """Return the task in this process, without `hydra.main` around it."""
        if self.pickled:
            return pickle.loads(self.pickled)  # noqa: S301  # what the driver sent
        task = reduce(getattr, self.name.split("."), importlib.import_module(self.module))
        return getattr(task, "__wrapped__", task)  # the function that hydra.main decorated


def _find(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _pickle(task: Any) -> bytes:
    try:
        return pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle  # comes with joblib and submitit

        pickled: bytes = cloudpickle.dumps(task)
        return pickled
