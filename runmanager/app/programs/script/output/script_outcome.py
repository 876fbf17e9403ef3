"""How a script's run ended, judged from outside: by its exit status and the end of what it wrote."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runmanager.app.programs.script.output.child_process import ScriptEnd
from runmanager.errors import RecordError
from runmanager.records.host.process import address_space_limit
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.reader import read_report
from runmanager.records.storage.run_folder import RunFolder
from runmanager.signals import signal_name
from runmanager.tracking.lifecycle.outcome import explained, is_out_of_memory

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
