"""Checks before the first run, as the driver sees them: what to check, answered by a process with torch."""

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra.plugins.launcher import Launcher

from runmanager.app.compose.schema import Config
from runmanager.app.driver.preflight_process import Parts, PreflightRequest, missing_devices, run_preflight
from runmanager.errors import ConfigurationError, RunManagerError
from runmanager.launching.hydra_launcher import LocalLauncher
from runmanager.launching.local.engine import LocalEngine, call_in_process
from runmanager.launching.local.worker import Returned
from runmanager.launching.plan import Action, PlannedRun
from runmanager.launching.slurm.launcher import SlurmLauncher
from runmanager.records.files.file_errors import require_creatable, require_writable
from runmanager.training.options.step import Precision

__all__ = ["check_cells", "predict_skipped", "require_creatable_output_root", "require_output_root", "warm_up"]

_ALWAYS_AVAILABLE = ("auto", "cpu")
_WAY_OUT = "make room there, or give another one with output_root=…"
require_output_root = partial(require_writable, "`output_root`", way_out=_WAY_OUT)
"""A context that raises `UsageError` if a folder under `output_root` cannot be written."""
require_creatable_output_root = partial(require_creatable, "`output_root`", way_out=_WAY_OUT)
"""Raises the same error before anything is written."""


def check_cells(
    launcher: Launcher, configs: Sequence[Config], *, given: Container[str], needs_all: bool, is_dry_run: bool = False
) -> None:
    """Check everything that can be known of cells before the first one starts, and fetch missing datasets.

    `given`: the settings that the command sets. Nothing is fetched for a dry run. Raises `ConfigurationError` with
    every fault. A missing device is one only if the command `needs_all` of its cells, as a single run or a duel does.
    """
    if not configs:
        return
    devices = _distinct([config.device for config in configs])
    _refuse_gpus(launcher, devices)
    here = configs if _runs_here(launcher) else []
    precisions = [(config.device, config.precision) for config in here if config.precision != Precision.FP32]
    request = PreflightRequest(
        parts=_distinct(list(map(_parts_of, configs))),
        devices=devices if _runs_here(launcher) and needs_all else [],
        accelerator_settings=_accelerator_settings(given, here),
        precisions=_distinct(precisions),
        compiled=_distinct([config.device for config in here if config.compile]),
        pieces=_distinct([(config.model, config.loss, config.micro_batch, config.on_oom) for config in configs]),
        data_root=Path(configs[0].data_root),
        downloads=not is_dry_run,
    )
    if faults := _call_in_process(launcher, run_preflight, request):
        raise ConfigurationError(faults)


def _parts_of(config: Config) -> Parts:
    monitored = {"early_stop.metric": config.early_stop.metric, "checkpoint.keep_best": config.checkpoint.keep_best}
    return Parts(config.dataset, config.model, config.loss, config.metrics, monitored)


def _accelerator_settings(given: Container[str], configs: Sequence[Config]) -> dict[str, Sequence[str]]:
    """The settings given by the command that only accelerators use, each with the devices of the cells that set it."""
    cells_with = {
        "loader.pin_memory": [each for each in configs if getattr(each.loader, "pin_memory", None)],
        "loader.prefetch_to_device": [each for each in configs if getattr(each.loader, "prefetch_to_device", None)],
        "graphs": [each for each in configs if each.graphs is True],
    }
    devices = {name: _distinct([cell.device for cell in cells]) for name, cells in cells_with.items() if cells}
    return {name: names for name, names in devices.items() if name in given}


def predict_skipped(launcher: Launcher, plan: Sequence[PlannedRun], *, needs_all: bool) -> Sequence[PlannedRun]:
    """Return the plan with those cells marked as skipped whose device this host lacks.

    Raises `ConfigurationError` instead if the command `needs_all` cells.
    """
    devices = _distinct([each.cell.device for each in plan if each.is_to_run and each.cell.device is not None])
    _refuse_gpus(launcher, devices)
    to_check = [name for name in devices if name not in _ALWAYS_AVAILABLE]
    missing: dict[str, str] = (
        _call_in_process(launcher, missing_devices, to_check) if to_check and _runs_here(launcher) else {}
    )
    if missing and needs_all:
        raise ConfigurationError(missing.values())
    return [
        replace(each, action=Action.SKIP, why=f"no {each.cell.device} here")
        if each.is_to_run and each.cell.device in missing
        else each
        for each in plan
    ]


def _runs_here(launcher: Launcher) -> bool:
    """Whether runs use this host's devices; Slurm's nodes have others."""
    return not isinstance(launcher, SlurmLauncher)


def _refuse_gpus(launcher: Launcher, devices: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a device that the launcher's settings exclude."""
    if isinstance(launcher, LocalLauncher):
        for device in devices:
            launcher.gpu_request(device)


def warm_up(launcher: Launcher, *, num_jobs: int) -> None:
    """Start the imports that the checks and the runs need."""
    _engine_of(launcher).get_ready(num_jobs=num_jobs)


def _engine_of(launcher: Launcher) -> LocalEngine:
    return launcher.engine if isinstance(launcher, LocalLauncher) else LocalEngine(preload=["torch"])


def _call_in_process(launcher: Launcher, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function` in another process, so that the driver never imports torch."""
    ending = call_in_process(_engine_of(launcher), function, *arguments)
    if isinstance(ending.answer, Returned):
        return ending.answer.value
    reason = ending.answer.message if ending.answer else f"the process ended with exit code {ending.exit_code}"
    raise RunManagerError(f"The checks before the first run failed: {reason}")


def _distinct(values: Sequence[Any]) -> list[Any]:
    return [value for index, value in enumerate(values) if value not in values[:index]]
