"""A cell of a script: its process runs the script as a child, of any interpreter, and supervises it."""

import json
import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from runmanager.app.programs.cell_metrics import FoundMetrics, logged_only
from runmanager.app.programs.cell_supervisor import CellSpec, ProgramEnd, supervise_cell
from runmanager.app.programs.resume_setting import ResumeSetting
from runmanager.app.programs.script.arguments.script_parser import ScriptParser
from runmanager.app.programs.script.arguments.setting_words import Setting, make_arguments
from runmanager.app.programs.script.output.child_process import (
    ScriptEnd,
    child_environment,
    has_reported_failure,
    outcome_of_script,
    run_script,
    with_hidden_modules,
    with_taken_path,
)
from runmanager.app.programs.script.output.printed_metrics import PrintedMetrics
from runmanager.app.programs.script.output.scalar_pattern import ScalarPattern
from runmanager.app.programs.script.torchrun import outcome_of_ranks, run_ranks
from runmanager.errors import RecordError, UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.gpus import find_gpus
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.settings.secrets import masked_settings, masked_words, secrets_from_environment
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.environment.environment import LIBRARIES

_LOSS = re.compile(r"(^|[^a-z])loss($|[^a-z])", re.IGNORECASE)


_SECONDS = 60
_QUESTION = """
import importlib.metadata, json, platform, sys

def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

found = {name: version(name) for name in sys.argv[1:]}
print(json.dumps([platform.python_version(), {name: each for name, each in found.items() if each is not None}]))
"""


@dataclass(frozen=True)
class Versions:
    """The version of Python, and of each installed library."""

    python: str
    libraries: dict[str, str]


def ask_interpreter(python: str) -> Versions:
    """Ask an interpreter for its versions. Raises `UsageError` if it does not answer."""
    try:
        done = subprocess.run(
            [python, "-c", _QUESTION, *LIBRARIES],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        return Versions(*json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise UsageError(
            f"`--python` must be a Python interpreter, got {python}, which does not print its versions: {error}."
        ) from None


@dataclass(frozen=True)
class ScriptCall:
    """How a cell's script is called; picklable.

    `parser` is its own, if it is known. `metric` comes first of those that it prints. `versions` are those of another
    interpreter than this process's. `logs_itself`: it uses this package. `processes` is the number of its ranks.
    `hiding` are the modules next to it that take the place of standard ones.
    """

    command: tuple[str, ...]
    folder: Path
    settings: Mapping[str, Setting]
    fixed: tuple[str, ...] = ()
    form: str | None = None
    parser: ScriptParser | None = None
    scalars: tuple[ScalarPattern, ...] = ()
    metric: str | None = None
    resume_with: ResumeSetting | None = None
    versions: Versions | None = None
    logs_itself: bool = False
    processes: int = 1
    hiding: tuple[str, ...] = ()
    chdir: bool = False
    import_folder: Path | None = None

    @property
    def names_of_numbers(self) -> list[str]:
        """The arguments that are numbers: what a script prints under such a name is what it was given."""
        known = () if self.parser is None else self.parser.arguments
        given = [name for name, each in self.settings.items() if isinstance(each.value, int | float)]
        return [*given, *(each.name for each in known if each.is_number)]

    def resumed_from(self, run: RunPaths, *, attempt: int) -> Path | None:
        """Return the file that this attempt resumes from, if it does."""
        if self.resume_with is None or attempt == 1:
            return None
        return self.resume_with.path_in(run, chdir=self.chdir)

    def words(self, run: RunPaths, *, resumed_from: Path | None) -> list[str]:
        """Return the command of an attempt with all arguments."""
        texts = secrets_from_environment({name: each.text for name, each in self.settings.items()})
        settings = {name: replace(each, text=texts[name]) for name, each in self.settings.items()}
        if self.resume_with is not None and resumed_from is not None:
            settings[self.resume_with.name] = Setting(str(resumed_from), str(resumed_from))
        run_dir = str(run.root.absolute())
        arguments = make_arguments(settings, fixed=self.fixed, form=self.form, parser=self.parser, run_dir=run_dir)
        return [*self.command, *arguments]


def run_script_cell(spec: CellSpec, call: ScriptCall) -> None:
    """Run the cell in this process and its child, and record how it ended. Raises what `supervise_cell` does."""
    supervise_cell(spec, lambda folder: _run(folder, call))


def _run(folder: RunFolder, call: ScriptCall) -> ProgramEnd:
    # From here on this process masks them in what it writes.
    masked_settings({name: each.text for name, each in call.settings.items()})
    masked_words(call.fixed)
    if call.versions is not None:
        python, libraries = call.versions.python, call.versions.libraries
        environment = msgspec.structs.replace(folder.record.environment, python=python, libraries=libraries)
        folder.write(environment=environment)
    if call.processes > 1:
        folder.write(world_size=call.processes)
    resumed_from = call.resumed_from(folder.paths, attempt=folder.record.attempt)
    printed = PrintedMetrics(
        call.scalars,
        folder.paths,
        settings=call.names_of_numbers,
        metric=call.metric,
        logs_itself=call.logs_itself,
        continues=resumed_from is not None,
    )
    live = _LiveSummary(folder, printed)
    end = _ended(call, folder.paths, resumed_from=resumed_from, printed=printed, live=live)
    printed.close()
    is_ranked = call.processes > 1
    ended, traceback, rank = outcome_of_ranks(end, folder.paths) if is_ranked else (*outcome_of_script(end), None)
    if traceback is not None:
        ended = with_hidden_modules(ended, call.hiding)
        ended = ended if call.chdir else with_taken_path(ended)
    found = FoundMetrics(
        printed=printed.metrics(), unasked=printed.unasked(), notes=[*printed.notes(), *_lost_output(end)]
    )
    # A script that does not report itself may have used a GPU, and ranks are not the process that was started.
    memory = None if find_gpus() or is_ranked else end.peak_resident_bytes
    outcome = ended if rank else _best_known(ended, printed, folder)  # rank 0 tells only what came of it
    return ProgramEnd(outcome=outcome, traceback=traceback, metrics=found, child=end.process, child_memory_bytes=memory)


def _ended(
    call: ScriptCall, run: RunPaths, *, resumed_from: Path | None, printed: PrintedMetrics, live: "_LiveSummary"
) -> ScriptEnd:
    """Run the script to its end, in one process or several."""
    words = call.words(run, resumed_from=resumed_from)
    where: Any = {"scanners": printed.scanners, "meanwhile": live.update}
    where["folder"] = run.root.absolute() if call.chdir else call.folder
    environment = {**os.environ}
    if call.import_folder is not None:
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(call.import_folder), environment.get("PYTHONPATH")])
        )
    if call.processes > 1:
        return run_ranks(words, run, processes=call.processes, environment=environment, **where)
    return run_script(words, environment=child_environment(environment), log=run.log, **where)


def _best_known(outcome: Outcome, printed: PrintedMetrics, folder: RunFolder) -> Outcome | None:
    """The outcome; None where the program itself has reported more of it, or its last loss says more."""
    if outcome.status is not Status.FAILED:
        return outcome
    if has_reported_failure(folder):
        return None
    losses = {name: value for name, value in printed.values.last.items() if _LOSS.search(name)}
    lost = [name for name, value in losses.items() if not math.isfinite(value)]
    if outcome.reason is Reason.EXIT and lost:
        return Outcome(Status.FAILED, Reason.DIVERGED, f"{lost[0]} is not finite; {outcome.message}")
    return outcome


def _lost_output(end: ScriptEnd) -> list[str]:
    return [] if end.lost_output is None else [f"run.log lacks the end of the output: {end.lost_output}"]


_PRINTED = "printed"
_WRITE_SECONDS = 1.0


class _LiveSummary:
    """Writes the last printed values to run.json, at most once a second.

    A metric that the program has logged keeps that value.
    """

    def __init__(
        self, folder: RunFolder, printed: PrintedMetrics, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._printed = printed
        self._clock = clock
        self._num_written = 0
        self._written_at = -_WRITE_SECONDS

    def update(self) -> None:
        """Write what is new. An error is left to the next time, and at last to the record of the run's end."""
        num_points, now = self._printed.num_points, self._clock()
        if num_points == self._num_written or now - self._written_at < _WRITE_SECONDS:
            return
        self._num_written, self._written_at = num_points, now
        logged = logged_only(self._folder.record).summary or {}
        printed = self._printed.metrics() | self._printed.unasked()
        new = {name: value for name, value in printed.items() if name not in logged}
        try:
            if not self._folder.is_lost():
                self._folder.write(summary=logged | new, origins=dict.fromkeys(new, _PRINTED))
        except (OSError, RecordError):
            return
