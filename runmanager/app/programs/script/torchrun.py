"""A script in several ranks: the command of torchrun that starts them, and which rank ended the run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runmanager.app.programs.script import rank_entry
from runmanager.app.programs.script.output.child_process import ScriptEnd
from runmanager.app.programs.script.output.script_outcome import outcome_of_script
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.status import Outcome

__all__ = ["FirstFailure", "find_first_failure", "outcome_of_ranks", "torchrun_command"]

_FIRST = "Root Cause (first observed failure):"
_FAILURE = re.compile(r"^\s*rank\s*:\s*(?P<rank>\d+).*\n\s*exitcode\s*:\s*(?P<status>-?\d+)", re.MULTILINE)


@dataclass(frozen=True)
class FirstFailure:
    """The rank that torchrun saw fail first, and its exit status, negative for a signal."""

    rank: int
    status: int


def torchrun_command(words: Sequence[str], run: RunPaths, *, processes: int) -> list[str]:
    """Return the command that runs the `words` of a script, of which the first is its interpreter, in so many ranks.

    The output of rank 0 is that of the command; each other rank has files below `ranks` in the run's folder.
    """
    python, *program = words
    to_files = ",".join(f"{rank}:3" for rank in range(1, processes))
    return [
        *(python, "-m", "torch.distributed.run", "--standalone"),
        f"--nproc-per-node={processes}",
        f"--log-dir={_folder_of(run)}",
        f"--redirects={to_files}",
        *(str(rank_entry.__file__), *program),
    ]


def outcome_of_ranks(end: ScriptEnd, run: RunPaths) -> tuple[Outcome, str | None, int | None]:
    """Return the outcome, the traceback that ended the run, if one did, and the rank that ended it, if one failed."""
    failure = None if end.was_stopped or end.status <= 0 else find_first_failure(end.errors)
    if failure is None:
        return *outcome_of_script(end), None
    errors = end.errors[: end.errors.rfind("torch.distributed.elastic")] if failure.rank == 0 else ""
    errors = _before_torchrun(errors) or _errors_of(run, failure.rank)
    outcome, traceback = outcome_of_script(ScriptEnd(failure.status, errors))
    told = f"rank {failure.rank}: {outcome.message.replace('the script', 'it', 1)}"
    if failure.status < 0:
        told = f"rank {failure.rank} was killed by {outcome.message}"
    return Outcome(outcome.status, outcome.reason, told), traceback, failure.rank


def find_first_failure(errors: str) -> FirstFailure | None:
    """Return the failure that torchrun reports as the first, at the end of its standard error."""
    begin = errors.rfind(_FIRST)
    found = None if begin < 0 else _FAILURE.search(errors, begin)
    return None if found is None else FirstFailure(int(found["rank"]), int(found["status"]))


_LOGGED = re.compile(r"^[WE]\d{4} [\d:.]+ \d+ torch/distributed/elastic/", re.MULTILINE)


def _before_torchrun(errors: str) -> str:
    """Return what the ranks wrote, before torchrun's own messages; without the prefix that torch gives a rank's."""
    own = _LOGGED.search(errors)
    text = errors[: own.start()] if own else errors
    return re.sub(r"^\[rank\d+\]: ?", "", text, flags=re.MULTILINE)


def _errors_of(run: RunPaths, rank: int) -> str:
    files = _folder_of(run).glob(f"*/attempt_0/{rank}/stderr.log")
    newest = max(files, key=lambda file: file.stat().st_mtime_ns, default=None)
    return "" if newest is None else _before_torchrun(newest.read_text(errors="replace"))


def _folder_of(run: RunPaths) -> Path:
    return run.root.absolute() / "ranks"
