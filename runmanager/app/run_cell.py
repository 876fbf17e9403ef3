"""The task that Hydra runs for each cell, in the process that the launcher provides."""

import logging
import os
import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from runmanager.app.compose.schema import Config, plain_config, read_config, register_resolvers
from runmanager.app.programs.application.started_again import telling_job
from runmanager.app.programs.cell_output import send_output_to
from runmanager.app.request.sweep_request import CONTINUES, RUN_NAME, read_node
from runmanager.errors import RecordError, RunBusyError, RunFailedError, UsageError
from runmanager.launching.local.parent_death import bind_workers
from runmanager.launching.local.turns import current_turn_client
from runmanager.launching.local.worker import OWN_PROCESS_VARIABLE, RESUMES_VARIABLE
from runmanager.launching.plan import Resume
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS
from runmanager.records.settings.signature import signature
from runmanager.records.settings.values import plain_settings
from runmanager.records.storage.driven_sweep import DRIVEN_VARIABLE
from runmanager.records.storage.reader import read_epochs, read_record
from runmanager.records.storage.stops import stops_noted
from runmanager.signals import handle_signals
from runmanager.tracking.manager import RunManager
from runmanager.tracking.metric_definitions import define_metric
from runmanager.tracking.run import ActiveRun
from runmanager.tracking.sinks import format_run_end
from runmanager.training.job import train_run

__all__ = ["run_cell"]

_log = logging.getLogger(__name__)


def run_cell(cfg: DictConfig) -> float | None:
    """Train one cell, write its record to its run folder, and return its metric for sweepers that optimise one.

    The grid sweeper reads the record: under it, a failed run returns None. Under another sweeper it raises
    `RunFailedError`. Raises `RunBusyError` for a cell that another process is running.
    """
    bind_workers()  # needed under other launchers; the local launcher has already done it
    folder = RunPaths(Path(HydraConfig.get().runtime.output_dir))
    is_driven = DRIVEN_VARIABLE in os.environ
    register_resolvers()
    options, params = read_config(cfg), plain_config(cfg)
    sweeper: Any = OmegaConf.to_container(HydraConfig.get().sweeper)
    request = read_node(sweeper)
    if request.metric is not None and request.better is not None:
        define_metric(request.metric, better=request.better)
    if not is_driven:
        _refuse_other_cell(folder, params)
    manager = RunManager(
        folder.root.parent.parent,
        overwrite=options.resume == Resume.NEVER and RESUMES_VARIABLE not in os.environ,
        tensorboard=options.tensorboard,
        console=False,
        owns_sweep=False,  # the driver writes sweep.json and the final tables
        heartbeat_timeout=OmegaConf.select(
            HydraConfig.get().sweeper, "heartbeat_timeout", default=SILENT_AFTER_SECONDS
        ),
    )
    with telling_job(HydraConfig.get()):
        _train_cell(manager, options, params, folder)
    if is_driven:
        return None
    _write_tables(SweepPaths(folder.root.parent.parent))
    return _final_metric(folder)


def _write_tables(sweep: SweepPaths) -> None:
    """Update the tables. The grid sweeper's driver does this whenever a run ends; another sweeper cannot."""
    from runmanager.results.result_files import write_tables

    try:
        write_tables(sweep, report=False)
    except Exception:  # the run is recorded, and the driver tries again
        _log.warning("the tables could not be written", exc_info=True)


_METRICS = ("val_accuracy", "val_loss", "accuracy", "loss")


def _final_metric(folder: RunPaths) -> float | None:
    """The first of `_METRICS` that the last epoch has; None if it has none, and for a skipped run.

    Raises `RunFailedError` if the run ended badly.
    """
    record, epochs = read_record(folder), read_epochs(folder)
    if not record.status.is_success:
        raise RunFailedError(f"run {record.name} {format_run_end(record)}")
    if not epochs:
        return None
    return next((value for name in _METRICS if (value := getattr(epochs[-1], name)) is not None), None)


def _refuse_other_cell(folder: RunPaths, params: Mapping[str, Any]) -> None:
    """Raise `UsageError` if the folder holds another cell's run; other sweepers may number their folders."""
    if folder.record.exists() and read_record(folder).signature != signature(plain_settings(params)):
        raise UsageError(
            f"Folder {folder.root} must be new or hold a run of the same settings, got another run; leave out "
            "`hydra.sweep.dir`, or give another one."
        )


def _train_cell(manager: RunManager, options: Config, params: Mapping[str, Any], folder: RunPaths) -> None:
    """Train the cell. Raises `RunBusyError`, and other errors only if the run's record does not tell them."""
    runs: list[ActiveRun] = []

    def claimed(run: ActiveRun) -> None:
        runs.append(run)
        if os.environ.get(OWN_PROCESS_VARIABLE):
            send_output_to(folder.log)

    with stops_noted(folder, lambda: runs[0].record.attempt if runs else None), _interruptible(runs):
        try:
            train_run(
                manager,
                options,
                params=params,
                folder=folder,
                when_claimed=claimed,
                turns=current_turn_client(),
                continues=_continued_run(folder),
                name=_told_by_sweeper(RUN_NAME) or "",
            )
        except RunBusyError:
            raise  # the record names the owner
        except (Exception, SystemExit):
            if not runs or not _has_ended(folder):
                raise
            _log.debug("the run failed", exc_info=True)


def _continued_run(folder: RunPaths) -> RunPaths | None:
    """Return the finished run that the sweeper lets this one continue."""
    name = _told_by_sweeper(CONTINUES)
    return None if name is None else RunPaths(folder.root.parent / name)


def _told_by_sweeper(option: str) -> str | None:
    """Return an option of the sweeper that it has set for this cell; None if it has not, or is another sweeper."""
    value: str | None = OmegaConf.select(HydraConfig.get().sweeper, option.rpartition(".")[2], default=None)
    return value


def _has_ended(folder: RunPaths) -> bool:
    """Whether the run's record says how it ended."""
    try:
        return read_record(folder).status.is_ended
    except RecordError:
        return False


def _interruptible(runs: list[ActiveRun]) -> AbstractContextManager[None]:
    """Make SIGTERM end the run after its epoch, if the process runs nothing else."""

    def stop() -> None:
        if not runs:
            raise KeyboardInterrupt
        runs[0].interrupt("stopped after this epoch")

    # In the driver's process, the driver handles the signals.
    return handle_signals([signal.SIGTERM], stop) if os.environ.get(OWN_PROCESS_VARIABLE) else nullcontext()
