"""The task that Hydra runs for each cell, in the process that the launcher provides."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from runmanager.app.compose.schema import plain_config, read_config, register_resolvers
from runmanager.app.programs.application.started_again import telling_job
from runmanager.app.programs.cell_supervisor import CellSpec, ProgramEnd, supervise_cell
from runmanager.app.request.sweep_request import CONTINUES, RUN_NAME, read_node
from runmanager.errors import DeviceUnavailableError, RunFailedError, UsageError
from runmanager.launching.local.parent_death import bind_workers
from runmanager.launching.local.turns import current_turn_client
from runmanager.launching.plan import Resume
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS
from runmanager.records.run.measurement import OUTCOMES
from runmanager.records.run.metric_names import by_preference
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import signature
from runmanager.records.settings.values import plain_settings
from runmanager.records.storage.ownership import DRIVEN_VARIABLE
from runmanager.records.storage.reader import read_epochs, read_record
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.device.devices import resolve_device
from runmanager.tracking.environment.code_hashes import hash_user_code
from runmanager.tracking.environment.environment import capture_environment
from runmanager.tracking.options import TurnSource, declared_directions, define_metric
from runmanager.tracking.sinks import Sink, format_run_end
from runmanager.training.criteria import declare_directions
from runmanager.training.job import train_run
from runmanager.training.options.groups import PairedOptions
from runmanager.training.options.job import Precision, TrainingOptions
from runmanager.training.step.amp import cudnn_benchmark, float32_precision

_log = logging.getLogger(__name__)


def run_cell(cfg: DictConfig) -> float | None:
    """Train one cell, write its record to its run folder, and return its metric for sweepers that optimise one.

    The grid sweeper reads the record: under it, a failed run returns None. Under another sweeper it raises
    `RunFailedError`. Raises `RunBusyError` for a cell that another process is running.
    """
    bind_workers()  # needed under other launchers; the local launcher has already done it
    paths = RunPaths(Path(HydraConfig.get().runtime.output_dir))
    is_driven = DRIVEN_VARIABLE in os.environ
    register_resolvers()
    options, settings = read_config(cfg), plain_settings(plain_config(cfg))
    sweeper: Any = OmegaConf.to_container(HydraConfig.get().sweeper)
    request = read_node(sweeper)
    if request.metric is not None and request.better is not None:
        define_metric(request.metric, better=request.better)
    if not is_driven:
        _refuse_other_cell(paths, settings)
    shorter = _told_by_sweeper(CONTINUES)
    with telling_job(HydraConfig.get()):
        end = train_cell(
            paths,
            options,
            settings,
            name=_told_by_sweeper(RUN_NAME) or paths.name,
            overwrites=options.resume == Resume.NEVER,
            continues=None if shorter is None else RunPaths(paths.root.parent / shorter),
            heartbeat_timeout=sweeper.get("heartbeat_timeout", SILENT_AFTER_SECONDS),
            turns=current_turn_client(),
        )
    error = None if end is None else end.error
    if error is not None and (isinstance(error, KeyboardInterrupt) or not paths.record.exists()):
        raise error  # no record tells it
    if is_driven:
        return None
    _write_tables(SweepPaths(paths.root.parent.parent))
    return _final_metric(paths)


def train_cell(
    paths: RunPaths,
    options: TrainingOptions,
    settings: Mapping[str, Any],
    *,
    name: str = "",
    turns: TurnSource | None = None,
    sinks: Sequence[Sink] | None = None,
    **spec: Any,
) -> ProgramEnd | None:
    """Train a cell of the built-in job with `settings`, which are stored, in a run folder; further names: `CellSpec`.

    Returns what `supervise_cell` does. Raises `RunBusyError`, and `UsageError` for `measure=paired` without `turns`.
    """
    if isinstance(options.measure, PairedOptions) and turns is None:
        raise UsageError(
            "`measure` must be single if runs cannot take turns, got paired; use `hydra/launcher=local` and "
            "`hydra/sweeper=grid`."
        )
    declare_directions(options.metrics)
    config, identity = dict(settings), signature(settings)
    pending = RunRecord(name=name or paths.name, signature=identity, status=Status.PENDING, config=config)
    # From the start, because the run's record contains both.
    with float32_precision(Precision(options.precision)), cudnn_benchmark(options.cudnn_benchmark):
        try:
            device = resolve_device(str(settings.get("device") or "cpu"))
        except DeviceUnavailableError as error:
            spec["lacks"] = str(error)
        else:
            code = hash_user_code(settings, is_built_in=True)
            pending = msgspec.structs.replace(pending, environment=capture_environment(device, code=code))

        def train(folder: RunFolder) -> ProgramEnd:
            train_run(folder, options, device=device, sinks=sinks, turns=turns)
            return ProgramEnd()

        reopens = (turns is not None and turns.again) or _lacks_inference(paths, options)
        cell = CellSpec(paths, pending, is_tracked=True, reopens_finished=reopens, better=declared_directions(), **spec)
        return supervise_cell(cell, train)


def _lacks_inference(paths: RunPaths, options: TrainingOptions) -> bool:
    sizes = options.infer.batch_sizes
    return bool(sizes and paths.record.exists() and read_record(paths).measurements.sizes_not_timed(sizes))


def _write_tables(sweep: SweepPaths) -> None:
    """Update the tables. The grid sweeper's driver does this whenever a run ends; another sweeper cannot."""
    from runmanager.results.result_files import write_tables

    try:
        write_tables(sweep, report=False)
    except Exception:  # the run is recorded, and the driver tries again
        _log.warning("the tables could not be written", exc_info=True)


def _final_metric(folder: RunPaths) -> float | None:
    """The preferred metric of those that the last epoch has; None if it has none, and for a skipped run.

    Raises `RunFailedError` if the run ended badly.
    """
    record, epochs = read_record(folder), read_epochs(folder)
    if not record.status.is_success:
        raise RunFailedError(f"run {record.name} {format_run_end(record)}")
    if not epochs:
        return None
    return next((value for name in by_preference(OUTCOMES) if (value := getattr(epochs[-1], name)) is not None), None)


def _refuse_other_cell(folder: RunPaths, settings: Mapping[str, Any]) -> None:
    """Raise `UsageError` if the folder holds another cell's run; other sweepers may number their folders."""
    if folder.record.exists() and read_record(folder).signature != signature(settings):
        raise UsageError(
            f"Folder {folder.root} must be new or hold a run of the same settings, got another run; leave out "
            "`hydra.sweep.dir`, or give another one."
        )


def _told_by_sweeper(option: str) -> str | None:
    """Return an option of the sweeper that it has set for this cell; None if it has not, or is another sweeper."""
    value: str | None = OmegaConf.select(HydraConfig.get().sweeper, option.rpartition(".")[2], default=None)
    return value
