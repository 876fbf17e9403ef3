"""The work of a job: what its process calls, and how a task function gets there.

It goes by its name where it has one there, else by its value.
"""

import importlib
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from runmanager.errors import ConfigurationError


@dataclass(frozen=True)
class Work:
    """A picklable function and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


def do_work(work: Work) -> Any:
    """Call the function; return what it returns, and raise what it raises."""
    return work.function(*work.arguments)


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
