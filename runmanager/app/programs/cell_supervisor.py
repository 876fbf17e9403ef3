"""The life of a cell: its process claims the run folder, runs the program in it, and records how it ended.

```
claim the run folder         tracking/lifecycle/open_run.py; run.json says `running`
prepare                      run.log, config.yaml, heartbeat, RUNMANAGER_RUN and RUNMANAGER_ATTEMPT
the program                  a call in this process, or a child process
find metrics                 what it returned, printed, and left in files of other programs
record the end               run.json, with what the program itself reported to reported.json
```

The built-in job is tracked: it does the last two itself, as a loop with a `RunManager` does.
"""

import contextlib
import datetime
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from runmanager.app.programs.cell_metrics import FoundMetrics, diverged_metric, logged_only, merged_metrics
from runmanager.app.programs.cell_output import in_program, send_output_to
from runmanager.app.programs.outside_files import OutsideWatch
from runmanager.app.programs.script.output.printed_metrics import last_printed
from runmanager.errors import RecordError
from runmanager.launching.local.turns import current_turn_client
from runmanager.launching.local.worker import OWN_PROCESS_VARIABLE, RESUMES_VARIABLE
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.gpus import find_gpus, is_device_missing
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS, HeartbeatObserver
from runmanager.records.run.program_report import ProgramReport, with_report
from runmanager.records.run.run_record import Environment, RunRecord
from runmanager.records.run.status import Outcome, Seen, Status, judge
from runmanager.records.storage.reader import read_epochs, read_report
from runmanager.records.storage.run_end import end_own_run, seen_in, stops_noted
from runmanager.records.storage.run_folder import RunFolder
from runmanager.signals import handle_signals, sigchld_ignored
from runmanager.tracking.environment.cell_process import ATTEMPT_VARIABLE, RUN_VARIABLE
from runmanager.tracking.environment.environment import host_environment
from runmanager.tracking.lifecycle.finalizers import last_run_begun_here
from runmanager.tracking.lifecycle.open_run import Reuse, continue_run, open_run
from runmanager.tracking.lifecycle.outcome import outcome_of, write_traceback
from runmanager.tracking.monitoring.heartbeat_writer import Heartbeat

_STARTED_RUNS = "runmanager.tracking.program.current_run"  # loaded, with torch, only where a run was started


@dataclass(frozen=True)
class CellSpec:
    """What the supervisor of a cell gets to know of it; picklable.

    `pending` is the run's record before it begins, `code` has the digests of the program's files. `overwrites`: a
    finished or killed run starts again too, its files in attempts/. `metric` names a number that the program returns;
    `better` has directions of metrics, `min` or `max`. `has_files`: the folder holds files of a launcher already.
    `lacks` says what this host has not. A new run continues the finished run `continues`, which had fewer epochs, and
    with `reopens_finished` a finished one goes on. `is_tracked`: the program is an `ActiveRun` in this folder, which
    takes turns, finishes its epoch when it is stopped, and records its own end. `output_argument` is a setting with
    which the program writes into its run folder.
    """

    run: RunPaths
    pending: RunRecord
    device: str | None = None
    code: dict[str, str] | None = None
    overwrites: bool = False
    metric: str | None = None
    better: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    heartbeat_timeout: float = SILENT_AFTER_SECONDS
    has_files: bool = False
    lacks: str = ""
    continues: RunPaths | None = None
    reopens_finished: bool = False
    is_tracked: bool = False
    output_argument: str = ""


@dataclass
class ProgramEnd:
    """How a program ended: the `error` that it raised, None if it ended well, and the metrics that it left.

    `outcome` is how it ended where that is known better than from an error, and `traceback` what ended it then.
    `child`: the program was a process of its own, of this number, with `child_memory_bytes` of peak memory, None if
    that is not known.
    """

    error: BaseException | None = None
    outcome: Outcome | None = None
    traceback: str | None = None
    child: int | None = None
    child_memory_bytes: int | None = None
    metrics: FoundMetrics = field(default_factory=FoundMetrics)


def supervise_cell(spec: CellSpec, run_program: Callable[[RunFolder], ProgramEnd]) -> ProgramEnd | None:
    """Claim the cell's folder, run its program, and record how it ended; return the program's end.

    `run_program` returns how the program ended; what it raises counts as the program's error. None is returned if the
    cell was not run: it has finished, or its device is missing. Raises `RunBusyError` if another process runs it.
    """
    if not spec.is_tracked and (turns := current_turn_client()) is not None:  # a whole run is one turn
        turns.ask(is_measured=False, is_cancelled=lambda: False)
    folder = _opened(spec)
    return None if folder is None else continue_cell(spec, folder, run_program, began=time.monotonic())


def continue_cell(
    spec: CellSpec, folder: RunFolder, run_program: Callable[[RunFolder], ProgramEnd], *, began: float
) -> ProgramEnd:
    """Run the program of a cell whose folder this process has claimed, and record how it ended.

    A process that has replaced its program by another (`os.exec`) goes on here; `began` is when the cell did, by the
    monotonic clock.
    """
    if os.environ.get(OWN_PROCESS_VARIABLE):
        send_output_to(spec.run.log)
    supervisor = _Supervisor(spec, folder, began=began)
    with supervisor.running():
        end = supervisor.run(run_program)
    supervisor.record(end)
    return end


def _opened(spec: CellSpec) -> RunFolder | None:
    """Claim the folder, resumed where the run was killed; None where there is nothing to run."""
    now = datetime.datetime.now(datetime.UTC).isoformat()
    record = msgspec.structs.replace(
        spec.pending,
        status=Status.RUNNING,
        started_at=now,
        owner=ProcessIdentity.current(),
        environment=spec.pending.environment if spec.is_tracked else host_environment(code=spec.code),
        better=dict(spec.better) or msgspec.UNSET,
        notes=spec.notes,
    )
    lacks = spec.lacks
    if is_device_missing(spec.device):
        lacks = f"Device {spec.device!r} was asked for but this host has no such device."
    opened = open_run(
        spec.run,
        record,
        Reuse(
            can_resume=True,
            overwrite=spec.overwrites and RESUMES_VARIABLE not in os.environ,
            reopens_finished=spec.reopens_finished,
            needs_checkpoint=spec.is_tracked,
        ),
        lacks=lacks,
        may_hold_files=spec.has_files,
        observer=HeartbeatObserver(limit_seconds=spec.heartbeat_timeout),
    )
    folder = opened.folder
    if opened.left:
        folder.leave()
        return None
    if spec.has_files:
        _keep_open_logs(folder.paths)
    if folder.continues and not spec.run.checkpoint.exists():
        _begin_records_again(folder)
    if spec.continues is not None and not folder.continues:
        from runmanager.tracking.tensorboard.sink import with_settings  # late: it imports torch

        known = msgspec.UNSET  # that both keep the same best weights
        folder.continues = continue_run(folder, spec.continues, with_settings=with_settings, keep_best=known)
    return folder


def _keep_open_logs(paths: RunPaths) -> None:
    """Put back what logging writes to already, where the files of an earlier attempt were moved aside."""
    for handler in logging.root.handlers:
        if not isinstance(handler, logging.FileHandler):
            continue
        path = Path(handler.baseFilename)
        moved = sorted(paths.attempts.glob(f"*/{path.name}"), key=lambda file: int(file.parent.name))
        if path.parent == paths.root and not path.exists() and moved:
            os.replace(moved[-1], path)


def _begin_records_again(folder: RunFolder) -> None:
    """Move the records of the earlier attempt aside: without a checkpoint of ours, the program counts from 1 again.

    Its own files stay where they are, as it may continue from them.
    """
    paths, record = folder.paths, folder.record
    aside = paths.attempts / str(record.attempt - 1)
    had_epochs = paths.epochs.exists()
    for path in (paths.epochs, paths.reported, *([paths.events] if had_epochs and paths.events else [])):
        if path.exists():
            aside.mkdir(parents=True, exist_ok=True)
            os.replace(path, aside / path.name)
    *before, last = record.earlier
    folder.write(earlier=(*before, msgspec.structs.replace(last, last_epoch=0)))


class _Supervisor:
    """One attempt of a cell between the claim of its folder and the record of its end."""

    def __init__(self, spec: CellSpec, folder: RunFolder, *, began: float) -> None:
        self._spec = spec
        self._folder = folder
        self._began = began
        activity = _FolderActivity(folder.paths.root)
        self._outside = OutsideWatch(folder.paths)
        self._heartbeat = Heartbeat(folder.paths.heartbeat, each_beat=lambda: self._advance(activity))
        self._device = _SeenDevice()

    def _advance(self, activity: "_FolderActivity") -> None:
        if activity.has_changed():
            self._heartbeat.progress += 1
        self._outside.look()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The environment and the heartbeat of a program; a tracked run has its own."""
        if self._spec.is_tracked:
            yield
            return
        variables = {
            RUN_VARIABLE: str(self._folder.paths.root.absolute()),
            ATTEMPT_VARIABLE: str(self._folder.record.attempt),
        }
        earlier = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        self._heartbeat.start()
        try:
            yield
        finally:
            for name, value in earlier.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def run(self, run_program: Callable[[RunFolder], ProgramEnd]) -> ProgramEnd:
        """Run the program; SIGTERM, with which the driver stops it, is a Ctrl-C to it, or ends it after its epoch."""
        numbers = [signal.SIGTERM] if os.environ.get(OWN_PROCESS_VARIABLE) else []
        noted = stops_noted(self._folder.paths, lambda: self._folder.record.attempt)
        try:
            with noted, handle_signals(numbers, self._stop):
                end = run_program(self._folder)
        except BaseException as error:
            end = ProgramEnd(error)
        # A run that the program began in this process, without a `with` block, ends with the program.
        if (started := sys.modules.get(_STARTED_RUNS)) is not None:
            try:
                started.end_current_run(end.error)
            except Exception as error:  # for example an epoch that was left open
                end.error = end.error or error
        return end

    def _stop(self) -> None:
        if self._spec.is_tracked and (run := last_run_begun_here()) is not None:
            run.interrupt("stopped after this epoch")
        else:
            raise KeyboardInterrupt

    @sigchld_ignored()
    def record(self, end: ProgramEnd) -> None:
        """Record the end, unless the run has done so, or another process has taken it over."""
        if not self._folder.is_ours:
            return
        self._heartbeat.stop(keeps_file=(is_lost := self._folder.is_lost()))
        if is_lost:
            self._folder.leave()
            return
        paths = self._folder.paths
        report = self._report()
        known = with_report(logged_only(self._folder.record), report)
        argument = self._spec.output_argument
        if end.metrics.unasked is None and not self._spec.is_tracked:
            with contextlib.suppress(OSError, ValueError):  # a program may close it
                sys.stdout.flush()
            end.metrics.unasked = last_printed(paths.log, self._folder.record.settings)
        end.metrics.notes += [*self._spec.notes, *self._outside.finish(end.child, argument=argument)]
        known, metrics = merged_metrics(paths, known, end.metrics)
        outcome = self._outcome(end, report, known)
        facts = {name: getattr(known, name) for name in _REPORTED}
        outside = self._outside.files(known.outside or None, argument=argument)
        facts["outside"] = outside or msgspec.UNSET
        facts["environment"] = self._device.added_to(known.environment, is_child=end.child is not None)
        earlier = self._folder.record  # a resumed run has the time and the memory of its earlier attempts
        reported = report if report is not None and report.attempt == earlier.attempt else ProgramReport()
        if reported.run_seconds is None:
            facts["run_seconds"] = (earlier.run_seconds or 0.0) + time.monotonic() - self._began
        if reported.peak_memory_bytes is None:
            peak = end.child_memory_bytes if end.child is not None else self._device.peak_memory_bytes()
            facts["peak_memory_bytes"] = max(earlier.peak_memory_bytes or 0, peak or 0) or None
        end_own_run(self._folder, outcome, **facts | metrics)
        if (shown := end.traceback or (end.error and in_program(end.error))) and outcome.status is Status.FAILED:
            write_traceback(shown, paths.error)
        self._folder.leave()

    def _report(self) -> ProgramReport | None:
        try:
            return read_report(self._folder.paths)
        except RecordError:
            return None  # what is left of it is not worth the run's end

    def _outcome(self, end: ProgramEnd, report: ProgramReport | None, known: RunRecord) -> Outcome:
        error = end.outcome if end.outcome is not None and not end.outcome.status.is_success else None
        if error is None and end.error is not None and not _is_good_exit(end.error):
            error = outcome_of(end.error)
        epochs = read_epochs(self._folder.paths)
        lost = diverged_metric(known, epochs)
        return judge(seen_in(self._folder.paths, known, Seen(error=error, lost_metric=lost), report, epochs))


_REPORTED = (
    "num_parameters",
    "epochs_planned",
    "interval",
    "peak_memory_bytes",
    "run_seconds",
    "measurements",
    "notes",
    "deviations",
    "better",
    "world_size",
    "num_records",
)


def _is_good_exit(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


_OWN_FILES = frozenset({"heartbeat", "run.json"})


class _FolderActivity:
    """Watches the files directly in a run folder: their sizes, and when they were written."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._last = self._state()

    def has_changed(self) -> bool:
        """Whether a file has been written since the last call."""
        earlier, self._last = self._last, self._state()
        return self._last != earlier

    def _state(self) -> frozenset[tuple[str, int, int]]:
        try:
            with os.scandir(self._root) as entries:
                files = [(each.name, each.stat()) for each in entries if each.name not in _OWN_FILES]
        except OSError:  # a file may vanish meanwhile
            return frozenset()
        return frozenset((name, stat.st_size, stat.st_mtime_ns) for name, stat in files)


_KIBIBYTE = 1024


class _SeenDevice:
    """What this process used."""

    def added_to(self, environment: Environment, *, is_child: bool = False) -> Environment:
        """Return the environment with the device, unless the program has reported it.

        `is_child`: the program was a child of this process.
        """
        if environment.device_name is not None:
            return environment
        return msgspec.structs.replace(environment, device_name=self._name(environment, is_child=is_child))

    def _name(self, environment: Environment, *, is_child: bool) -> str | None:
        if (device := _accelerator()) is not None:
            from runmanager.tracking.device.devices import device_facts  # loads torch, as the next does

            return str(device_facts(device, cpu_model=None)["device_name"])
        was_seen = "torch" in sys.modules and not is_child
        return environment.cpu_model if was_seen or not find_gpus() else None

    def peak_memory_bytes(self) -> int | None:
        """Return the peak of what this process allocated on the accelerator; on CPU its peak resident memory.

        None where the accelerator does not tell.
        """
        if (device := _accelerator()) is not None:
            from runmanager.tracking.device.devices import peak_memory

            return peak_memory(device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE


def _accelerator() -> Any:
    """Return the accelerator that this process has used most, a torch.device; None without one."""
    if "torch" not in sys.modules:
        return None
    from runmanager.tracking.device.devices import devices_in_use

    return next(iter(devices_in_use()), None)
