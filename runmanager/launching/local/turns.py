"""Turns of jobs on one machine: how a job asks for them, and what the engine needs of their keeper.

A job requests a turn through a pipe and waits; the keeper is in the driver, or in another process.
"""

import contextlib
import io
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from runmanager.records.run.run_record import Grant

_POLL_SECONDS = 0.2


def message_of(**values: Any) -> SimpleNamespace:
    """Return a message to a process that may have another version of this package, which tells it by the number.

    Its values are attributes, not items, as versions from before the number read attributes.
    """
    return SimpleNamespace(version=1, **values)


_EARLIER = (
    ("runmanager.launching.local.turn_keeper", "_TurnRequest"),
    ("runmanager.records.run.turn_record", "Grant"),
)
"""Classes whose objects were messages of versions from before the number."""


class _Messages(pickle.Unpickler):
    """Reads messages, also those of versions from before the number."""

    def find_class(self, module: str, name: str) -> Any:
        return SimpleNamespace if (module, name) in _EARLIER else super().find_class(module, name)


def received(pipe: Connection) -> Any:
    """Return the next message. Raises `EOFError` or `OSError` where the other process is gone."""
    return _Messages(io.BytesIO(pipe.recv_bytes())).load()


class TurnClient:
    """A job's end of the pipe on which it requests turns; `session` is the name that all jobs of the group share.

    `again`: the job has ended before, and takes its measured turns once more. `family` is the process whose descendants
    take turns, None for the parent of this one. `reports_imports`: the first request for a measured turn names the
    files that the process has imported.
    """

    def __init__(
        self,
        pipe: Connection,
        session: str,
        *,
        again: bool = False,
        family: int | None = None,
        reports_imports: bool = False,
    ) -> None:
        self._pipe = pipe
        self.session = session
        self.again = again
        self.family = family
        self._reports_imports = reports_imports

    def ask(
        self, *, is_measured: bool, samples: int = 0, seconds: float = 0.0, is_cancelled: Callable[[], bool]
    ) -> Grant | None:
        """Return the job's turn, if it has one, and wait for the next; None after the last one.

        `samples` and `seconds` are the measurement of that turn. Measured turns begin when every job asks for one.
        Raises `EOFError` where the driver is gone.
        """
        imported: tuple[str, ...] = ()
        if is_measured and self._reports_imports:
            imported, self._reports_imports = _imported_files(), False
        try:
            self._pipe.send(message_of(is_measured=is_measured, samples=samples, seconds=seconds, imported=imported))
            while True:
                # Checked first: where turns are short, the next one is there before the first poll returns.
                if is_cancelled():
                    return None
                if self._pipe.poll(_POLL_SECONDS):
                    break
            answer = received(self._pipe)
        except OSError as error:  # the pipe breaks in one way or another
            raise EOFError("the driver is gone") from error
        if answer is None:
            return None
        if answer.core is not None:
            _move_to(answer.core)
        return Grant(answer.round, answer.place, answer.warmup, answer.core)

    def close(self) -> None:
        self._pipe.close()


def _imported_files() -> tuple[str, ...]:
    """Return the source files of all modules that this process has imported."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    # Modules that were made, not read, have a file of their name without a folder.
    return tuple(sorted({file for file in files if isinstance(file, str) and file.startswith(os.sep)}))


def _move_to(core: int) -> None:
    """Move this thread to a core, from which the kernel may move it again.

    The kernel wakes a process on the core where it slept. Two that take turns would each stay on one core, with
    whatever other work that core has.
    """
    with contextlib.suppress(OSError):  # a core that was taken offline
        usable = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        os.sched_setaffinity(0, usable)


_clients: list[TurnClient] = []


def set_turn_client(client: TurnClient) -> None:
    """Set the turn client of this process."""
    _clients[:] = [client]


def current_turn_client() -> TurnClient | None:
    """Return the turn client of this process; None where it takes no turns."""
    return _clients[0] if _clients else None


class Turns:
    """What the local engine needs of the keeper of its jobs' turns.

    The base class is for jobs that take none, or ask a keeper in another process.
    """

    @property
    def pipes(self) -> list[Connection]:
        """The pipes to wait on; `receive` reads them."""
        return []

    def add(self, key: int) -> TurnClient | None:
        """Add the job `key` and return its client, to be passed to its process and then closed in this one."""
        return None

    def started(self) -> None:
        """Note that the last process so far has started."""

    def remove(self, key: int) -> None:
        """Remove a job that is gone, and its turn; the others continue."""

    def clock(self, key: int) -> float:
        """Return seconds that pass only while the job does not wait for its turn, where this process knows that."""
        return time.monotonic()

    def receive(self, ready: Sequence[object]) -> None:
        """Read the requests from those of `pipes` that are ready, and grant the next turn."""
