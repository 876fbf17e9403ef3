"""The task that Hydra runs for each cell, in whatever process its launcher gives it."""

import logging
import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from runmanager.app.schema import plain_config, read_config
from runmanager.errors import RunBusyError
from runmanager.launching.child import GOES_ON_VARIABLE, OWN_PROCESS_VARIABLE
from runmanager.launching.lifeline import tie_workers
from runmanager.launching.plan import Resume
from runmanager.launching.signals import signals_call
from runmanager.launching.turns import own_seat
from runmanager.records.heartbeat import SILENT_AFTER_SECONDS
from runmanager.records.paths import RunPaths
from runmanager.tracking.manager import RunManager
from runmanager.tracking.provenance import DRIVEN_VARIABLE
from runmanager.tracking.run import ActiveRun
from runmanager.training.job import train_run

__all__ = ["run_cell"]

_log = logging.getLogger(__name__)


def run_cell(cfg: DictConfig) -> None:
    """Train one cell and leave its record in its run folder.

    Returns where the run failed, too: how it ended is in the record, whatever the launcher makes of an exception. A
    cell that another process has come to run meanwhile is left to it.
    """
    tie_workers()  # other launchers than ours have not done so
    folder = RunPaths(Path(HydraConfig.get().runtime.output_dir))
    options = read_config(cfg)
    manager = RunManager(
        folder.root.parent.parent,
        overwrite=options.resume == Resume.NEVER and GOES_ON_VARIABLE not in os.environ,
        tensorboard=options.tensorboard,
        console=False,
        owns_sweep=DRIVEN_VARIABLE not in os.environ,  # another sweeper than ours writes neither record nor tables
        heartbeat_timeout=OmegaConf.select(
            HydraConfig.get().sweeper, "heartbeat_timeout", default=SILENT_AFTER_SECONDS
        ),
    )
    runs: list[ActiveRun] = []

    def claimed(run: ActiveRun) -> None:
        runs.append(run)
        if os.environ.get(OWN_PROCESS_VARIABLE):
            _send_output_to(folder.log)

    with _interruptible(runs):
        try:
            train_run(manager, options, params=plain_config(cfg), folder=folder, when_claimed=claimed, turns=own_seat())
        except RunBusyError:
            if not folder.record.exists():
                raise  # it is no run that is in the way
            _log.debug("left to another process", exc_info=True)
        except (Exception, SystemExit):
            if not runs:
                raise  # there is no record yet that could tell
            _log.debug("the run failed", exc_info=True)


def _send_output_to(path: Path) -> None:
    """Let everything that this process and its children print end up in the run's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


def _interruptible(runs: list[ActiveRun]) -> AbstractContextManager[None]:
    """Let SIGTERM end the run after its epoch, where the process is the run's own."""

    def stop() -> None:
        if not runs:
            raise KeyboardInterrupt
        runs[0].interrupt("stopped after this epoch")

    # In the driver's own process its signals are the driver's business.
    return signals_call([signal.SIGTERM], stop) if os.environ.get(OWN_PROCESS_VARIABLE) else nullcontext()
