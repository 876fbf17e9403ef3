"""Starting the processes of jobs: forks of a server that has imported what they need; spawned where it cannot fork.

Huge pages for the heap of the server make its forks cheaper: a few page table entries, not 70,000.
"""

import contextlib
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from runmanager.errors import RunManagerError
from runmanager.launching.local.multiprocessing_internals import (
    LOST_EXIT_CODE,
    MAIN_MODULE_KEYS,
    interpreter_state,
    start_forkserver,
    start_resource_tracker,
)
from runmanager.launching.local.worker import MANY_RUNS_VARIABLE, PRELOAD_VARIABLE, Request, child_main
from runmanager.records.host.import_path import modules_like_standard
from runmanager.records.host.process import ProcessIdentity, address_space_limit, process_limit

MAIN_VARIABLE = "RUNMANAGER_MAIN"
"""Environment variable of the server: the driver's pid, import path and main module, as JSON."""

SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable of Python: do not search the current folder. The server removes it from its forks'."""

_KILL_SECONDS = 30.0  # until a killed process is dead
_EXIT_SECONDS = 1.0  # from a closed pipe to the death of the process
_TRIES = 10
_TRIES_WITH_LIMIT = 2  # more would meet it too
_PAUSE_SECONDS = 0.1
_LEAST_OPEN_FILES = 16  # 8 of the server, and what comes with each request, of which Python checks the number
_MANY_JOBS = 50  # from here on huge pages save more in the forks than they cost


@dataclass(frozen=True)
class StartedProcess:
    """The process of a job, and the pipe through which it sends its answer."""

    process: Any
    pipe: Connection
    identity: ProcessIdentity | None
    server: ProcessIdentity | None

    def is_lost(self) -> bool:
        """Whether its server is gone, so that the exit code is unknown.

        The process is dead on return: killed with its group and waited for.
        """
        if self.process.exitcode != LOST_EXIT_CODE or self.server is None:
            return False
        if self.identity is not None and self.identity.is_alive():  # a living server would have reported its death
            kill_group(self.process.pid)
            _wait_for_death(self.identity, _KILL_SECONDS)
            return True
        # A process that is being killed closes its pipes a moment before it counts as dead.
        return _wait_for_death(self.server, _EXIT_SECONDS)


def _wait_for_death(process: ProcessIdentity, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.is_alive():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


class ProcessStarter:
    """Starts processes. The server gets `environment` in addition to the driver's own when it starts."""

    def __init__(self, *, preload: Sequence[str], environment: Mapping[str, str]) -> None:
        self._forks = sys.platform == "linux"
        self._context: Any = multiprocessing.get_context("forkserver" if self._forks else "spawn")
        self._environment = {**environment, PRELOAD_VARIABLE: ",".join(preload)}
        if modules_like_standard(Path.cwd()):
            # The server would import one of them in place of a standard module, before it has the driver's path.
            self._environment[SAFE_PATH] = "1"
        if self._forks:
            self._context.set_forkserver_preload(["runmanager.launching.local.forkserver_preload"])

    def get_ready(self, *, num_jobs: int) -> None:
        """Start the server, if there is none, so that it imports meanwhile; `num_jobs` is how many it will fork."""
        if self._forks:
            many = {MANY_RUNS_VARIABLE: "1"} if num_jobs >= _MANY_JOBS else {}
            with _added_to_environment(self._environment | {MAIN_VARIABLE: _driver_state()} | many):
                _server()

    def start(self, request: Request) -> StartedProcess:
        """Start a process for a request, from a new server where the present one has been killed.

        Raises `RunManagerError` where no server stays alive, or the limit on open files is too low for one.
        """
        if self._forks:
            _refuse_few_open_files()
        with _added_to_environment(self._environment | {MAIN_VARIABLE: _driver_state()}):
            for number in range(1, _TRIES + 1):
                try:
                    return self._start(request)
                except (EOFError, ConnectionError) as error:
                    limit = address_space_limit() or process_limit()
                    if number == (_TRIES_WITH_LIMIT if limit else _TRIES):
                        cause = f"{limit}: raise that limit" if limit else "this machine may lack memory"
                        raise RunManagerError(
                            f"The process that runs are forked from must live, got its end while it started; {cause}."
                        ) from error
                    time.sleep(_PAUSE_SECONDS)  # until the server's death can be seen
        raise AssertionError("the last try returns or raises")

    def _start(self, request: Request) -> StartedProcess:
        server = _server() if self._forks else None
        mine, theirs = connection.Pipe(duplex=False)
        request = replace(request, server=server.pid if server else None)
        process = self._context.Process(target=child_main, args=(theirs, request), daemon=False)
        try:
            process.start()
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        return StartedProcess(process, mine, ProcessIdentity.of(process.pid), server)


def _server() -> ProcessIdentity | None:
    """Return the forkserver, started if there is none. Raises `RunManagerError` where no process may start."""
    try:
        start_resource_tracker()  # the server's start would start it, and unblock these signals
        # Signals to the driver's whole group, as from a terminal, `timeout` or a service manager, are for the driver
        # alone: blocked from the server's first instruction on. Later it ignores Ctrl-C, and SIGTERM stays blocked.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            pid = start_forkserver()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    except BlockingIOError as error:
        limit = process_limit()
        cause = f"{limit}: raise that limit" if limit else "this machine may have too many processes"
        raise RunManagerError(
            f"The process that runs are forked from must start, got {error.strerror}; {cause}."
        ) from error
    return None if pid is None else ProcessIdentity.of(pid)


def _refuse_few_open_files() -> None:
    import resource  # imported late: Windows lacks it

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < _LEAST_OPEN_FILES:
        raise RunManagerError(
            f"The limit on open files (ulimit -n) must be at least {_LEAST_OPEN_FILES}, got {most}; raise that limit."
        )


def _driver_state() -> str:
    state = interpreter_state()
    keys = ("sys_path", *MAIN_MODULE_KEYS)
    own = {"driver": os.getpid(), "safe_path": SAFE_PATH in os.environ}
    return json.dumps(own | {key: state[key] for key in keys if key in state})


@contextlib.contextmanager
def _added_to_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Add variables to the driver's environment within the block, for the processes that it starts."""
    earlier = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in earlier.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def kill_group(pid: int) -> None:
    """Kill a process and all that it started, if it leads its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


_MADV_COLLAPSE = 25  # linux/mman.h, since Linux 6.1; an older kernel returns EINVAL and changes nothing
_HUGE_PAGE_BYTES = 2 << 20  # where huge pages are larger, the kernel refuses too


def collapse_heap() -> None:
    """Ask Linux to move the writable anonymous memory of this process into huge pages. Does nothing on other systems.

    It takes some tenths of a second in a process that has imported torch. Then a fork, with the end of the forked
    process, costs the kernel a third of before (8 ms, not 27 ms), and a cell of `benchmarks/sweep_overhead` an eighth
    less.
    """
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        span, access, *_, inode_and_name = line.split(maxsplit=4)
        inode, _, name = inode_and_name.partition(" ")
        if "w" not in access or inode != "0" or name.strip() not in ("", "[heap]"):
            continue
        begin, end = (int(address, 16) for address in span.split("-"))
        begin, end = -(-begin // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES, end // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        if begin < end:
            advise(begin, end - begin, _MADV_COLLAPSE)
