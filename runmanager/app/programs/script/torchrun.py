"""A program in several ranks: the command of torchrun that starts them, and which rank ended the run."""

import contextlib
import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from runmanager.app.programs.script import rank_entry
from runmanager.app.programs.script.output.child_process import (
    ScriptEnd,
    child_environment,
    outcome_of_script,
    run_script,
)
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.status import Outcome, Reason

_FIRST = "Root Cause (first observed failure):"
_FAILURE = re.compile(r"^\s*rank\s*:\s*(?P<rank>\d+).*\n\s*exitcode\s*:\s*(?P<status>-?\d+)", re.MULTILINE)
_SENT = re.compile(r"SignalException: Process \d+ got signal: (?P<signal>\d+)")  # to torchrun, which then ends


@dataclass(frozen=True)
class _FirstFailure:
    """The rank that torchrun saw fail first, and its exit status, negative for a signal."""

    rank: int
    status: int


def run_ranks(
    words: Sequence[str],
    run: RunPaths,
    *,
    processes: int,
    folder: Path,
    environment: Mapping[str, str],
    scanners: Mapping[str, Callable[[bytes], object]] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> ScriptEnd:
    """Run the `words` of a program, of which the first is its interpreter, in so many ranks; see `run_script`.

    The output of rank 0 is that of the run; each other rank has files below `ranks` in the run's folder. However
    torchrun ends, every process that it or a rank has started is dead on return.
    """
    with _ending_left_processes():
        return run_script(
            _torchrun_command(words, run, processes=processes),
            folder=folder,
            environment=child_environment(environment, processes=processes),
            log=run.log,
            scanners=scanners,
            meanwhile=meanwhile,
        )


def _torchrun_command(words: Sequence[str], run: RunPaths, *, processes: int) -> list[str]:
    python, *program = words
    to_files = ",".join(f"{rank}:3" for rank in range(1, processes))
    return [
        *(python, "-m", "torch.distributed.run", "--standalone"),
        f"--nproc-per-node={processes}",
        f"--log-dir={rank_files(run)}",
        f"--redirects={to_files}",
        *(str(rank_entry.__file__), *program),
    ]


def rank_files(run: RunPaths) -> Path:
    """Return the folder for files of a run's ranks."""
    return run.root.absolute() / "ranks"


def outcome_of_ranks(end: ScriptEnd, run: RunPaths) -> tuple[Outcome, str | None, int | None]:
    """Return the outcome, the traceback that ended the run, if one did, and the rank that ended it, if one failed."""
    failure = None if end.status <= 0 else _find_first_failure(end.errors)
    if failure is None:
        return *_outcome_without_failure(end), None
    errors = end.errors[: end.errors.rfind("torch.distributed.elastic")] if failure.rank == 0 else ""
    errors = _before_torchrun(errors) or _errors_of(run, failure.rank)
    outcome, traceback = outcome_of_script(ScriptEnd(failure.status, errors))
    told = f"rank {failure.rank}: {outcome.message.replace('the script', 'it', 1)}"
    if failure.status < 0:
        told = f"rank {failure.rank} was killed by {outcome.message}"
    return Outcome(outcome.status, outcome.reason, told), traceback, failure.rank


def _outcome_without_failure(end: ScriptEnd) -> tuple[Outcome, str | None]:
    """The outcome where no rank failed first: torchrun itself may have been killed."""
    sent = None if end.status <= 0 else _SENT.search(end.errors)
    outcome, traceback = outcome_of_script(end if sent is None else ScriptEnd(-int(sent["signal"]), ""))
    if outcome.reason is Reason.SIGNAL:
        told = f"torchrun was killed by {outcome.message}, and its ranks with it"
        return Outcome(outcome.status, outcome.reason, told), None
    return outcome, traceback


def _find_first_failure(errors: str) -> _FirstFailure | None:
    """Return the failure that torchrun reports as the first, at the end of its standard error."""
    begin = errors.rfind(_FIRST)
    found = None if begin < 0 else _FAILURE.search(errors, begin)
    return None if found is None else _FirstFailure(int(found["rank"]), int(found["status"]))


_LOGGED = re.compile(r"^[WE]\d{4} [\d:.]+ \d+ torch/distributed/elastic/", re.MULTILINE)


def _before_torchrun(errors: str) -> str:
    """Return what the ranks wrote, before torchrun's own messages; without the prefix that torch gives a rank's."""
    own = _LOGGED.search(errors)
    text = errors[: own.start()] if own else errors
    return re.sub(r"^\[rank\d+\]: ?", "", text, flags=re.MULTILINE)


def _errors_of(run: RunPaths, rank: int) -> str:
    files = rank_files(run).glob(f"*/attempt_0/{rank}/stderr.log")
    newest = max(files, key=lambda file: file.stat().st_mtime_ns, default=None)
    return "" if newest is None else _before_torchrun(newest.read_text(errors="replace"))


_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PAUSE_SECONDS = 0.01
_KILL_SECONDS = 30.0  # until killed processes are dead: one in a call of a driver may take longer


@contextlib.contextmanager
def _ending_left_processes() -> Iterator[None]:
    """Kill, at the end of the block, what is left of all that was started in it, and wait until it is dead.

    The kernel gives this process the orphans among its descendants, so none is missed, whichever died first. Children
    that it had before are left alone. Linux only: elsewhere nothing is done.
    """
    if _LIBC is None:
        yield
        return
    before = _children()
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        deadline = time.monotonic() + _KILL_SECONDS
        while (left := _children() - before) and time.monotonic() < deadline:
            for pid in left:
                _kill(pid)
            time.sleep(_PAUSE_SECONDS)  # the children of what was killed arrive here in turn
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def _kill(pid: int) -> None:
    """Kill a child, and collect it if it is dead."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)
