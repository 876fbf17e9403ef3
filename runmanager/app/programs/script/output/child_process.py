"""The process of a script: started, its output handed on without secrets, stopped and ended with its supervisor.

How its run ended is judged from outside: by its exit status and the end of what it wrote.
"""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from runmanager.errors import RecordError
from runmanager.records.host.process import address_space_limit
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.settings.secrets import MASK, remembered_secrets
from runmanager.records.storage.reader import read_report
from runmanager.records.storage.run_folder import RunFolder
from runmanager.signals import handle_signals, signal_name
from runmanager.tracking.lifecycle.outcome import explained, is_out_of_memory

_OF_THIS_PROCESS = (
    *("RUNMANAGER_OWN_PROCESS", "RUNMANAGER_DRIVEN", "RUNMANAGER_GOES_ON", "RUNMANAGER_PRELOAD"),
    "RUNMANAGER_DUEL",
)
_OUTPUT = {"PYTHONUNBUFFERED": "1", "COLUMNS": "500"}  # else points come at the exit, and rich wraps lines at 80
_THREADS = "OMP_NUM_THREADS"

_CHUNK_BYTES = 2**16
_TAIL_BYTES = 2**18  # of standard error: enough for a traceback
_POLL_SECONDS = 0.2
_DRAIN_SECONDS = 1.0  # for what the script has started and left, which may hold its pipes open


class SecretFilter:
    """Masks `secrets` in a stream of bytes; of one that has only begun, the bytes are held back until more follow."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = [secret.encode(errors="surrogateescape") for secret in secrets]
        self._held = b""

    def take(self, data: bytes) -> bytes:
        """Return what can be written of the stream now."""
        data = self._held + data
        for secret in self._secrets:
            data = data.replace(secret, MASK.encode())
        end = len(data) - max((_begun(data, secret) for secret in self._secrets), default=0)
        self._held = data[end:]
        return data[:end]

    def rest(self) -> bytes:
        """Return what was held back: the stream has ended."""
        held, self._held = self._held, b""
        return held


def _begun(data: bytes, secret: bytes) -> int:
    """Return how many of the last bytes are the beginning of `secret`."""
    return next((size for size in range(min(len(secret) - 1, len(data)), 0, -1) if data.endswith(secret[:size])), 0)


@dataclass(frozen=True)
class ScriptEnd:
    """How a script ended: its exit status, negative for a signal, and the end of what it wrote to standard error.

    `lost_output` is the error since which run.log lacks its output, `process` the number of its process.
    `peak_resident_bytes` is the largest resident memory of its process that was seen; None if it ended too soon.
    """

    status: int
    errors: str
    peak_resident_bytes: int | None = None
    lost_output: OSError | None = None
    process: int = 0


def child_environment(variables: Mapping[str, str], *, processes: int = 1) -> dict[str, str]:
    """Return the environment of a program that is a child of this process, of which `variables` are the own.

    Several `processes` share the threads of the run.
    """
    kept = {name: value for name, value in variables.items() if name not in (*_OF_THIS_PROCESS, "LINES")} | _OUTPUT
    if processes > 1:
        kept[_THREADS] = str(max(1, _num_threads(variables) // processes))
    return kept


def _num_threads(variables: Mapping[str, str]) -> int:
    """The number of threads of this run, which its process was given when it began."""
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    given = variables.get(_THREADS, "")
    return int(given) if given.isdigit() else 1


def run_script(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    scanners: Mapping[str, Callable[[bytes], object]] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> ScriptEnd:
    """Run a script to its end and return how it ended.

    Its output goes to `log` in the order in which it comes, unchanged but for secrets that this process knows, and each
    part of it to the scanner of its stream, `stdout` or `stderr`. `meanwhile` is called several times a second. A
    SIGTERM to this process is passed on.
    Whatever becomes of this process, the script and what it has started die with it, if this process leads its process
    group. Raises `OSError` if the script cannot be started.
    """
    copier = _Copier(log, scanners or {})
    with _group_ends_with_this_process(), copier:
        with _default_interrupt():
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

        def stop() -> None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

        peak = 0

        def look() -> None:
            nonlocal peak
            peak = max(peak, _peak_resident_bytes(process))
            meanwhile()

        with process, handle_signals([signal.SIGTERM], stop):
            copier.copy(process, look)
            status = process.wait()
    errors = copier.tail.decode("utf-8", errors="replace")
    return ScriptEnd(status, errors, peak_resident_bytes=peak or None, lost_output=copier.lost, process=process.pid)


def _peak_resident_bytes(process: subprocess.Popen[bytes]) -> int:
    """Return the peak so far, 0 if it is gone.

    `getrusage` would count the memory of this process, from which the script was forked.
    """
    try:
        status = Path("/proc", str(process.pid), "status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


class _Copier:
    """Copies both streams of a process to a file and to the streams' scanners, and keeps the end of standard error."""

    def __init__(self, log: Path, scanners: Mapping[str, Callable[[bytes], object]]) -> None:
        self._log = log
        self._scanners = scanners
        self._filters = {name: SecretFilter(remembered_secrets()) for name in ("stdout", "stderr")}
        self._file: IO[bytes] | None = None
        self.tail = b""
        self.lost: OSError | None = None

    def __enter__(self) -> "_Copier":
        with self._keeping_on():
            self._file = self._log.open("ab", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._filters.values():
            self._log_bytes(each.rest())
        if self._file is not None:
            self._file.close()

    def copy(self, process: subprocess.Popen[bytes], meanwhile: Callable[[], object]) -> None:
        """Copy until both streams have ended, or a second after the process's end."""
        with selectors.DefaultSelector() as selector:
            for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, name)
            ended_at: float | None = None
            while selector.get_map():
                for key, _ in selector.select(_POLL_SECONDS):
                    if data := os.read(key.fd, _CHUNK_BYTES):
                        self._take(key.data, data)
                    else:
                        selector.unregister(key.fileobj)
                meanwhile()
                if ended_at is None and process.poll() is not None:
                    ended_at = time.monotonic()
                if ended_at is not None and time.monotonic() - ended_at >= _DRAIN_SECONDS:
                    return

    def _take(self, name: str, data: bytes) -> None:
        self._log_bytes(self._filters[name].take(data))
        if name == "stderr":
            self.tail = (self.tail + data)[-_TAIL_BYTES:]
        if name in self._scanners:
            self._scanners[name](data)

    def _log_bytes(self, data: bytes) -> None:
        if self._file is not None and data:
            with self._keeping_on():
                self._file.write(data)

    @contextlib.contextmanager
    def _keeping_on(self) -> Iterator[None]:
        """A full disk costs the rest of the log, not the run."""
        try:
            yield
        except OSError as error:
            self.lost = self.lost or error
            if self._file is not None:
                self._file.close()
                self._file = None


@contextlib.contextmanager
def _group_ends_with_this_process() -> Iterator[None]:
    """Let a shell kill this process's group when the process is gone: the shell's standard input ends with it."""
    group = os.getpgrp()
    if group != os.getpid():
        yield
        return
    words = ["/bin/sh", "-c", f"read _; kill -s KILL -- -{group}"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True) as guard:
        try:
            yield
        finally:
            guard.kill()


@contextlib.contextmanager
def _default_interrupt() -> Iterator[None]:
    """Let a process that is started here take SIGINT as any other does; a run's process itself ignores it."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)


_BEGIN = re.compile(r"^.*Traceback \(most recent call last\).*$", re.MULTILINE)
_ERROR = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_FRAME = re.compile(r"^[ \t│|╭╰+]|^$")  # Python indents frames; rich draws a box, exception groups a margin
_MAX_MESSAGE_LINES = 60  # longer is what a script prints after a traceback that it has survived
_UNCAUGHT = 1  # Python's exit status after an exception that nothing caught, and after `sys.exit("a message")`
_UNPRINTED = "lost sys.stderr"  # what Python prints in place of an exception while it ends (Python/pythonrun.c)
_USAGE = 2  # that of libraries that read arguments
_MISSING = re.compile(
    r"(?:rank \d+: )?(?:Attribute|Import|ModuleNotFound)Error: "
    r"(?:No module named|(?:partially initialized )?module|cannot import name '\w+' from"
    r"(?: partially initialized module)?) '(?P<module>\w+)[.']"
)
_TAKEN = re.compile(r"(?:rank \d+: )?FileExistsError: \[Errno 17\] File exists: '(?P<path>[^']+)'$")
_MEMORY_ERRORS = ("MemoryError", "OutOfMemoryError")


@dataclass(frozen=True)
class _FinalTraceback:
    """The traceback at the end of a script's errors: its text, and the exception in one line."""

    text: str
    kind: str
    message: str

    @property
    def line(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind

    @property
    def is_out_of_memory(self) -> bool:
        if self.kind.rpartition(".")[2] in _MEMORY_ERRORS:
            return True
        return self.kind == "RuntimeError" and is_out_of_memory(RuntimeError(self.text))


def outcome_of_script(end: ScriptEnd) -> tuple[Outcome, str | None]:
    """Return the outcome of a script, and the traceback that ended it, if one did."""
    if end.status < 0:
        causes = [signal_name(-end.status), address_space_limit()]
        return Outcome(Status.KILLED, Reason.SIGNAL, "; ".join(filter(None, causes))), None
    if end.status == 0:
        return Outcome(Status.FINISHED), None
    traceback = _find_final_traceback(end.errors) if end.status == _UNCAUGHT else None
    if traceback is not None:
        reason = Reason.OUT_OF_MEMORY if traceback.is_out_of_memory else Reason.EXCEPTION
        return Outcome(Status.FAILED, reason, explained(traceback.line, traceback.text)), traceback.text
    last = next((line.strip() for line in reversed(end.errors.splitlines()) if line.strip()), "")
    if end.status == _UNCAUGHT and last == _UNPRINTED:
        return Outcome(Status.FAILED, Reason.EXCEPTION, f"Python could not print the exception: {last}"), None
    status = f"the script ended with status {end.status}"
    says_why = end.status in (_UNCAUGHT, _USAGE) and last
    return Outcome(Status.FAILED, Reason.EXIT, f"{status}: {last}" if says_why else status), None


def with_hidden_modules(outcome: Outcome, hiding: Iterable[str]) -> Outcome:
    """Add to the message of an ImportError or AttributeError that the module it names takes a standard one's place."""
    message = outcome.message or ""
    missing = _MISSING.match(message)
    path = next((each for each in map(Path, hiding) if missing is not None and each.stem == missing["module"]), None)
    if path is None:
        return outcome
    said = f"{path.name} next to the script takes the place of Python's own {path.stem}; rename it"
    return Outcome(outcome.status, outcome.reason, f"{message}; {said}")


def with_taken_path(outcome: Outcome) -> Outcome:
    """Add to the message of a FileExistsError below the working folder, in which all cells work, a way out of it."""
    message = outcome.message or ""
    taken = _TAKEN.match(message)
    if taken is None or Path(taken["path"]).is_absolute():
        return outcome
    said = f"{message}; another cell may have made it: with --chdir each has its own"
    return Outcome(outcome.status, outcome.reason, said)


def has_reported_failure(folder: RunFolder) -> bool:
    """Whether the program itself has reported a bad end of this attempt, of which it knows more than can be seen."""
    try:
        report = read_report(folder.paths)
    except RecordError:
        return False
    if report is None or report.attempt != folder.record.attempt or report.outcome is None:
        return False
    return not report.outcome.status.is_success


def _find_final_traceback(errors: str) -> _FinalTraceback | None:
    """Return the traceback with which standard error ends, with those of the exceptions that led to it.

    None if there is none, or if more follows it than the message of an exception.
    """
    begins = list(_BEGIN.finditer(errors))
    if not begins:
        return None
    rest = errors[begins[-1].end() :].lstrip("\n").splitlines()
    for index, line in enumerate(rest):
        if _FRAME.match(line):
            continue
        found = _ERROR.match(line)
        if found is None or len(rest) - index > _MAX_MESSAGE_LINES:
            return None
        first = _first_of_chain(errors, [begin.start() for begin in begins])
        return _FinalTraceback(errors[first:].strip() + "\n", found["kind"], (found["message"] or "").strip())
    return None


def _first_of_chain(errors: str, begins: list[int]) -> int:
    """Where the exceptions begin that led to the last one: Python joins their tracebacks by a sentence."""
    first = begins[-1]
    for earlier in reversed(begins[:-1]):
        between = errors[earlier:first].rstrip()
        if not between.endswith(("another exception occurred:", "direct cause of the following exception:")):
            break
        first = earlier
    return first
