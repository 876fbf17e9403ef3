"""The driver's side of the checks before the first run: what to ask of which cells. A process with torch answers."""

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra.plugins.launcher import Launcher

from runmanager.app.compose.cells import Grid
from runmanager.app.compose.schema import Config
from runmanager.app.driver.preflight_process import PreflightRequest, missing_devices, run_preflight
from runmanager.errors import ConfigurationError, RunManagerError
from runmanager.launching.hydra_launcher import LocalLauncher
from runmanager.launching.local.engine import LocalEngine, call
from runmanager.launching.local.worker import Returned
from runmanager.launching.plan import Action, PlannedRun
from runmanager.launching.slurm.launcher import SlurmLauncher
from runmanager.records.files.unwritable_folder import require_writable
from runmanager.training.options.step import Precision

__all__ = ["check_cells", "check_planned_runs", "predict_skipped", "require_output_root", "warm_up"]

_EVERYWHERE = ("auto", "cpu")
_WAY_OUT = "make room there, or give another one with output_root=…"
require_output_root = partial(require_writable, "`output_root`", way_out=_WAY_OUT)
"""Raises `UsageError` where a folder under `output_root` cannot be written."""


def check_planned_runs(launcher: Launcher, grid: Grid, to_run: Sequence[PlannedRun], *, needs_all: bool) -> None:
    """Check the cells `to_run` of a grid, as `check_cells` does."""
    signatures = {each.cell.signature for each in to_run}
    configs = [config for cell, config in zip(grid.cells, grid.configs, strict=True) if cell.signature in signatures]
    check_cells(launcher, configs, given=grid.given, needs_all=needs_all)


def check_cells(launcher: Launcher, configs: Sequence[Config], *, given: Container[str], needs_all: bool) -> None:
    """Ask all that can be known of cells before one of them begins; fetch the data that are missing.

    `given` are the settings that the command gave. Raises `ConfigurationError` with every fault, a missing device among
    them where the command `needs_all` of its cells: a single run, or a duel, which has no answer with one side.
    """
    if not configs:
        return
    devices = _distinct([config.device for config in configs])
    _refuse_gpus(launcher, devices)
    here = configs if _runs_here(launcher) else []
    precisions = [(config.device, config.precision) for config in here if config.precision != Precision.FP32]
    questions = PreflightRequest(
        parts=_distinct([(config.dataset, config.model) for config in configs]),
        devices=devices if _runs_here(launcher) and needs_all else [],
        for_accelerators=_for_accelerators(given, here),
        precisions=_distinct(precisions),
        compiled=_distinct([config.device for config in here if config.compile]),
        pieces=_distinct([(config.model, config.micro_batch, config.on_oom) for config in configs]),
        data_root=Path(configs[0].data_root),
    )
    if faults := _ask(launcher, run_preflight, questions):
        raise ConfigurationError(faults)


def _for_accelerators(given: Container[str], configs: Sequence[Config]) -> dict[str, Sequence[str]]:
    """The settings that the command gave and only accelerators heed, each with the devices of the cells that ask."""
    asking = {
        "loader.pin_memory": [each for each in configs if getattr(each.loader, "pin_memory", None)],
        "loader.prefetch_to_device": [each for each in configs if getattr(each.loader, "prefetch_to_device", None)],
        "graphs": [each for each in configs if each.graphs is True],
    }
    devices = {name: _distinct([cell.device for cell in cells]) for name, cells in asking.items() if cells}
    return {name: found for name, found in devices.items() if name in given}


def predict_skipped(launcher: Launcher, plan: Sequence[PlannedRun], *, needs_all: bool) -> Sequence[PlannedRun]:
    """The plan with the cells that this host will skip for want of their device.

    Raises `ConfigurationError` where the command `needs_all` cells, as running it would.
    """
    devices = _distinct([str(each.cell.config["device"]) for each in plan if each.is_to_run])
    _refuse_gpus(launcher, devices)
    asked = [name for name in devices if name not in _EVERYWHERE]
    missing: dict[str, str] = _ask(launcher, missing_devices, asked) if asked and _runs_here(launcher) else {}
    if missing and needs_all:
        raise ConfigurationError(missing.values())
    return [
        replace(each, action=Action.SKIP, why=f"no {each.cell.config['device']} here")
        if each.is_to_run and each.cell.config["device"] in missing
        else each
        for each in plan
    ]


def _runs_here(launcher: Launcher) -> bool:
    """Slurm's nodes have other devices than the host that hands the cells over."""
    return not isinstance(launcher, SlurmLauncher)


def _refuse_gpus(launcher: Launcher, devices: Sequence[str]) -> None:
    """Raises `ConfigurationError` for a device that the launcher's own settings rule out."""
    if isinstance(launcher, LocalLauncher):
        for device in devices:
            launcher.wish_for(device)


def warm_up(launcher: Launcher, *, num_jobs: int) -> None:
    """Let what the checks and the runs need begin to be imported now."""
    _engine_of(launcher).get_ready(num_jobs=num_jobs)


def _engine_of(launcher: Launcher) -> LocalEngine:
    return launcher.engine if isinstance(launcher, LocalLauncher) else LocalEngine(preload=["torch"])


def _ask(launcher: Launcher, question: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of a process of its own, so that the driver never loads torch."""
    ending = call(_engine_of(launcher), question, *arguments)
    if isinstance(ending.answer, Returned):
        return ending.answer.value
    said = ending.answer.message if ending.answer else f"the process ended with exit code {ending.exit_code}"
    raise RunManagerError(f"The checks before the first run could not be made: {said}")


def _distinct(values: Sequence[Any]) -> list[Any]:
    return [value for index, value in enumerate(values) if value not in values[:index]]
