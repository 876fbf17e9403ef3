"""The task that Hydra runs for each cell, in whatever process its launcher gives it."""

import io
import logging
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from runmanager.app.compose.schema import Config, plain_config, read_config
from runmanager.errors import RecordError, RunBusyError, RunFailedError, UsageError
from runmanager.launching.local.parent_death import tie_workers
from runmanager.launching.local.turn_keeper import own_seat
from runmanager.launching.local.worker import OWN_PROCESS_VARIABLE, RESUMES_VARIABLE
from runmanager.launching.plan import Resume
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS
from runmanager.records.settings.grid import plain_settings
from runmanager.records.settings.signature import signature
from runmanager.records.storage.reader import read_epochs, read_record
from runmanager.signals import handle_signals
from runmanager.tracking.environment.provenance import DRIVEN_VARIABLE
from runmanager.tracking.manager import RunManager
from runmanager.tracking.run import ActiveRun
from runmanager.tracking.sinks import end_line
from runmanager.training.job import train_run

__all__ = ["run_cell"]

_log = logging.getLogger(__name__)


def run_cell(cfg: DictConfig) -> float | None:
    """Train one cell, leave its record in its run folder, and return what it reached, for a sweeper that optimises it.

    Our own sweeper reads the record: to it a failed run returns too, and a cell that another process has come to run
    meanwhile is left to that. To another sweeper both are errors: `RunFailedError` and `RunBusyError`.
    """
    tie_workers()  # other launchers than ours have not done so
    folder = RunPaths(Path(HydraConfig.get().runtime.output_dir))
    is_driven = DRIVEN_VARIABLE in os.environ
    options, params = read_config(cfg), plain_config(cfg)
    if not is_driven:
        _refuse_another(folder, params)
    manager = RunManager(
        folder.root.parent.parent,
        overwrite=options.resume == Resume.NEVER and RESUMES_VARIABLE not in os.environ,
        tensorboard=options.tensorboard,
        console=False,
        owns_sweep=False,  # the driver writes its record, and the last tables
        heartbeat_timeout=OmegaConf.select(
            HydraConfig.get().sweeper, "heartbeat_timeout", default=SILENT_AFTER_SECONDS
        ),
    )
    try:
        _run_to_its_end(manager, options, params, folder)
    except RunBusyError:
        if not is_driven or not folder.record.exists():
            raise  # without a record it is not a run that is in the way
        _log.debug("left to another process", exc_info=True)
        return None
    if is_driven:
        return None
    _write_tables(SweepPaths(folder.root.parent.parent))
    return _reached(folder)


def _write_tables(sweep: SweepPaths) -> None:
    """Write the tables as they stand: our own sweeper's driver does it whenever a run ends, another one's cannot."""
    from runmanager.results.writer import write_tables

    try:
        write_tables(sweep, report=False)
    except Exception:  # the run is in its record, and the driver tries again
        _log.warning("the tables could not be written", exc_info=True)


_REACHED = ("val_accuracy", "accuracy", "val_loss", "loss")


def _reached(folder: RunPaths) -> float | None:
    """The first of these metrics that the last epoch has; None for a skipped run, and where there is none of them.

    Raises `RunFailedError` for a run that ended badly.
    """
    record, epochs = read_record(folder), read_epochs(folder)
    if not record.status.is_success:
        raise RunFailedError(f"run {folder.name} {end_line(record)}")
    if not epochs:
        return None
    return next((value for name in _REACHED if (value := getattr(epochs[-1], name)) is not None), None)


def _refuse_another(folder: RunPaths, params: Mapping[str, Any]) -> None:
    """Another sweeper's folders may be counted: one that holds another cell's run is no place for this one."""
    if folder.record.exists() and read_record(folder).signature != signature(plain_settings(params)):
        raise UsageError(
            f"Folder {folder.root} must be new or hold a run of the same settings, got the run of others; leave out "
            "`hydra.sweep.dir`, or give another one."
        )


def _run_to_its_end(manager: RunManager, options: Config, params: Mapping[str, Any], folder: RunPaths) -> None:
    """Train the cell; raises nothing where the run's record tells what went wrong, and `RunBusyError`."""
    runs: list[ActiveRun] = []

    def claimed(run: ActiveRun) -> None:
        runs.append(run)
        if os.environ.get(OWN_PROCESS_VARIABLE):
            _send_output_to(folder.log)

    with _interruptible(runs):
        try:
            train_run(manager, options, params=params, folder=folder, when_claimed=claimed, turns=own_seat())
        except RunBusyError:
            raise  # whose run it is now, its record says
        except (Exception, SystemExit):
            if not runs or not _is_told(folder):
                raise
            _log.debug("the run failed", exc_info=True)


def _is_told(folder: RunPaths) -> bool:
    """Whether the run's record tells how it ended."""
    try:
        return read_record(folder).status.is_ended
    except RecordError:
        return False


def _send_output_to(path: Path) -> None:
    """Let everything that this process and its children print end up in the run's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # whatever the terminal's is


def _interruptible(runs: list[ActiveRun]) -> AbstractContextManager[None]:
    """Let SIGTERM end the run after its epoch, where the process is the run's own."""

    def stop() -> None:
        if not runs:
            raise KeyboardInterrupt
        runs[0].interrupt("stopped after this epoch")

    # In the driver's own process its signals are the driver's business.
    return handle_signals([signal.SIGTERM], stop) if os.environ.get(OWN_PROCESS_VARIABLE) else nullcontext()
