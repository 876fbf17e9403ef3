"""Launching planned cells by whichever launcher the command has chosen."""

from collections.abc import Callable, Sequence

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher

from runmanager.app.driver.program import Program
from runmanager.app.driver.run_listener import SweepListener
from runmanager.launching.hydra_internals import job_exception
from runmanager.launching.hydra_launcher import JobFacts, LocalLauncher
from runmanager.launching.local.turns import Turns
from runmanager.launching.plan import PlannedRun, stored_record
from runmanager.launching.slurm.launcher import SlurmLauncher
from runmanager.launching.work import Work
from runmanager.race.pairing import Pairing
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.run_end import end_gone_run
from runmanager.text import error_line

__all__ = ["is_detached", "launch_cells", "launch_sessions"]


def is_detached(launcher: Launcher) -> bool:
    """Whether the runs continue without their driver."""
    return isinstance(launcher, SlurmLauncher) and not launcher.options.wait


def launch_cells(
    program: Program,
    launcher: Launcher,
    listener: SweepListener,
    sweep: SweepPaths,
    batch: Sequence[PlannedRun],
    first: int,
    turns: Turns | None = None,
    is_begun: bool = False,
) -> Sequence[JobReturn]:
    """Run `batch`, whose keys count from `first`; `is_begun`: this command has already run it once."""

    def work_for(key: int, number: int = 1) -> Work:
        # A retry within this command resumes, even under resume=never.
        is_again = is_begun or (number > 1 and listener.has_claimed(key))
        return program.work(launcher, batch[key - first], sweep, key=key, is_again=is_again)

    if isinstance(launcher, LocalLauncher):
        launcher.listener, launcher.turns, launcher.work_for = listener, turns, work_for
        launcher.facts = [JobFacts(launcher.gpu_request(each.cell.device), each.paths.heartbeat) for each in batch]
    elif isinstance(launcher, SlurmLauncher):
        launcher.listener, launcher.runs, launcher.work_for = listener, batch, work_for
        launcher.when_ended = "runmanager.app.driver.run_listener:write_tables_alone"
    returns = launcher.launch([program.hydra_overrides(each, sweep) for each in batch], initial_job_idx=first)
    if not isinstance(launcher, LocalLauncher | SlurmLauncher):
        for run, result in zip(batch, returns, strict=True):
            _record_failure(run, result)
    return returns


def launch_sessions(
    pairing: Pairing,
    listener: SweepListener,
    launch: Callable[..., Sequence[JobReturn]],
    batch: Sequence[PlannedRun],
    first: int,
) -> Sequence[JobReturn]:
    """Run `batch`, whose runs take turns, once for each session; return the first session's results.

    `launch` takes what `launch_cells` takes from the batch on.
    """
    sessions = pairing.sessions(batch)
    with listener.sessions(lambda: sessions.has_next):
        returns = launch(batch, first, sessions.start(batch, first))
        while not listener.is_halted and (again := sessions.next_runs()):
            first = listener.take(again)
            launch(again, first, sessions.start(again, first), is_begun=True)
    return returns


def _record_failure(run: PlannedRun, result: JobReturn) -> None:
    """Record the end of a run that another launcher of Hydra reports as failed, where the run itself could not."""
    record = stored_record(run)
    if result.status is JobStatus.FAILED and (record is None or record.status is Status.CRASHED):
        outcome = Outcome(Status.FAILED, Reason.EXCEPTION, error_line(job_exception(result)))
        end_gone_run(run.paths, outcome, pending=run.pending_record())
