"""The process of a run: its set-up, the call, and the answer to the driver."""

import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from runmanager.errors import RunBusyError
from runmanager.launching.local.multiprocessing_internals import interpreter_state, restore_interpreter_state
from runmanager.launching.local.parent_death import bind_workers, die_with_parent, watch_driver
from runmanager.launching.local.turns import TurnClient, set_turn_client
from runmanager.launching.work import Work, do_work
from runmanager.records.host.standard_streams import repaired_streams
from runmanager.records.run.status import Reason

OWN_PROCESS_VARIABLE = "RUNMANAGER_OWN_PROCESS"
"""Environment variable, set in the process of a run: the output and signals of this process belong to the run alone."""

RESUMES_VARIABLE = "RUNMANAGER_GOES_ON"
"""Environment variable, set where the same command has started this cell before and has applied `resume=never` then."""

MANY_RUNS_VARIABLE = "RUNMANAGER_MANY_RUNS"
"""Environment variable of the server, set where it will fork so many runs that cheaper forks are worth their cost."""

PRELOAD_VARIABLE = "RUNMANAGER_PRELOAD"
"""Environment variable with the names of the modules to preload, separated by commas."""


@dataclass(frozen=True)
class Request:
    """The work of a process: call `function(*arguments)` in this folder, environment and number of threads.

    `server` is the pid of the forkserver that is the parent, None without one; `turns` is for jobs that take turns.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    environment: Mapping[str, str]
    folder: str
    threads: int
    server: int | None = None
    turns: TurnClient | None = None


@dataclass(frozen=True)
class Returned:
    """The function returned `value`."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The function raised, for this `reason`. `is_busy`: another process runs the cell. `attached` comes with an
    `AnsweredError`.
    """

    message: str
    traceback: str
    reason: Reason = Reason.EXCEPTION
    is_busy: bool = False
    attached: Any = None


class AnsweredError(Exception):
    """Raised by a job's function for the `error` of what it calls, with something attached for the driver."""

    def __init__(self, error: BaseException, attached: Any) -> None:
        super().__init__(error)
        self.error = error
        self.attached = attached


def child_main(connection: Connection, request: Request) -> None:
    """Set up the process of a run, do what is requested, and send the answer."""
    os.setsid()  # one signal reaches the run and its loader's workers, and a terminal's Ctrl-C reaches neither
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # inherited: the server blocks it
    if request.server is None:
        watch_driver()
    else:
        die_with_parent(request.server)  # again: the driver may have started the server without our preload
    bind_workers()
    if sys.platform == "linux":
        # A loader's workers would else come from a nested forkserver: slow to start, and alive after a kill.
        multiprocessing.set_start_method("fork", force=True)
    os.environ.clear()
    os.environ.update(request.environment)
    os.environ[OWN_PROCESS_VARIABLE] = "1"
    os.chdir(request.folder)
    if request.turns is not None:
        set_turn_client(request.turns)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(request.threads)
    else:
        os.environ["OMP_NUM_THREADS"] = str(request.threads)  # read when torch is imported
    with repaired_streams():
        answer = _answer(request)
    _send(connection, answer)


def _answer(request: Request) -> Returned | Raised:
    try:
        return Returned(request.function(*request.arguments))
    except AnsweredError as answered:
        error = answered.error
        lines = "".join(traceback.format_exception(error))
        return Raised(f"{type(error).__name__}: {_message_of(error)}", lines, attached=answered.attached)
    except SystemExit as error:
        return Raised(f"sys.exit({error.code})", traceback.format_exc(), Reason.EXIT)
    except BaseException as error:
        message = f"{type(error).__name__}: {_message_of(error)}"
        reason = Reason.INTERRUPTED if isinstance(error, KeyboardInterrupt) else Reason.EXCEPTION
        return Raised(message, traceback.format_exc(), reason, is_busy=isinstance(error, RunBusyError))


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a user-defined __str__ may raise too
        return "a message that cannot be shown"


def _send(connection: Connection, answer: Returned | Raised) -> None:
    try:
        data = pickle.dumps(answer)
    except Exception as error:
        if isinstance(answer, Raised):
            answer = replace(answer, attached=None)  # its message is enough
            data = pickle.dumps(answer)
        else:
            data = pickle.dumps(Raised(f"the result cannot be sent: {error}", traceback.format_exc()))
    connection.send_bytes(data)
    connection.close()


def send_work(work: Work) -> tuple[Mapping[str, Any], bytes]:
    """Return the arguments of `do_sent_work` that do this work as the driver would, with its folder and main module."""
    return interpreter_state(), pickle.dumps(work)


def do_sent_work(driver_state: Mapping[str, Any], work: bytes) -> Any:
    """Restore the driver's state in the run's own process, and do the pickled `Work`."""
    # Hydra is loaded late: not every process that starts one needs it.
    from runmanager.launching.hydra_internals import keep_imported_main_quiet

    os.register_at_fork(after_in_child=_block_termination)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a supervisor may ignore it, by inheritance; the task may handle it
    keep_imported_main_quiet()
    restore_interpreter_state(driver_state)
    return do_work(pickle.loads(work))  # noqa: S301  # what the driver sent


def _block_termination() -> None:
    # torch gives a loader's workers a handler that makes them die of a SIGTERM that is not their parent's. A run that
    # should end after its epoch would fail. When the run is over, its whole group is killed.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
