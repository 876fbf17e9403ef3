"""Checks before the first run, as the driver sees them: room on this host, and what a process with torch answers."""

import heapq
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from runmanager.app.compose.schema import Config
from runmanager.app.driver.preflight_process import Parts, PreflightRequest, missing_devices, run_preflight
from runmanager.app.driver.program import Can
from runmanager.errors import ConfigurationError, RunManagerError
from runmanager.launching.launcher import CellLauncher, Place, Trait
from runmanager.launching.local.engine import call_in_process
from runmanager.launching.local.worker import Returned
from runmanager.launching.plan import Action, Cell, PlannedRun
from runmanager.records.files.file_errors import require_creatable, require_writable
from runmanager.records.host.gpus import is_device_missing
from runmanager.records.host.process import format_gib, free_memory
from runmanager.records.settings.secrets import masked_names
from runmanager.training.options.dataset import DatasetOptions
from runmanager.training.options.job import Precision
from runmanager.validation import fault

_ALWAYS_AVAILABLE = ("auto", "cpu")
_WAY_OUT = "make room there, or give another one with output_root=…"
require_output_root = partial(require_writable, "`output_root`", way_out=_WAY_OUT)
"""A context that raises `UsageError` if a folder under `output_root` cannot be written."""
require_creatable_output_root = partial(require_creatable, "`output_root`", way_out=_WAY_OUT)
"""Raises the same error before anything is written."""


def check_cells(
    launcher: CellLauncher,
    configs: Sequence[Config],
    *,
    given: Container[str],
    needs_all: bool,
    is_dry_run: bool = False,
) -> None:
    """Check everything that can be known of cells before the first one starts, and fetch missing datasets.

    `given`: the settings that the command sets. Nothing is fetched for a dry run. Raises `ConfigurationError` with
    every fault. A missing device is one only if the command `needs_all` of its cells, as a single run or a duel does.
    """
    if not configs:
        return
    devices = _distinct([config.device for config in configs])
    launcher.require_gpus(devices)
    is_elsewhere = Trait.ELSEWHERE in launcher.traits
    here = [] if is_elsewhere else configs
    precisions = [(config.device, config.precision) for config in here if config.precision != Precision.FP32]
    request = PreflightRequest(
        parts=_distinct(list(map(_parts_of, configs))),
        devices=devices if needs_all and not is_elsewhere else [],
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


def predict_skipped(
    launcher: CellLauncher, plan: Sequence[PlannedRun], *, can: Container[Can], needs_all: bool
) -> Sequence[PlannedRun]:
    """Return the plan with those cells marked as skipped whose device this host lacks.

    `can`: what their program can. Raises `ConfigurationError` instead if the command `needs_all` cells.
    """
    to_run = [each.cell for each in plan if each.is_to_run and each.cell.device is not None]
    devices = _distinct([cell.device for cell in to_run])
    launcher.require_gpus(devices)
    if Trait.ELSEWHERE in launcher.traits:
        return plan
    finds_devices = Can.FIND_DEVICES in can
    to_check = [name for name in devices if name not in _ALWAYS_AVAILABLE] if needs_all or finds_devices else []
    missing: dict[str, str] = _call_in_process(launcher, missing_devices, to_check) if to_check else {}
    if missing and needs_all:
        raise ConfigurationError(missing.values())

    # Once for each device, as a host may have to ask `nvidia-smi`, which takes up to seconds.
    lacking: Container[str] = missing if finds_devices else {name for name in devices if is_device_missing(name)}
    return [
        replace(each, action=Action.SKIP, why=f"no {each.cell.device} here")
        if each.is_to_run and each.cell.device in lacking
        else each
        for each in plan
    ]


def refuse_literal_secrets(launcher: CellLauncher, cells: Sequence[Cell]) -> None:
    """Raise `ConfigurationError` for secrets that would reach other processes through files, or be printed."""
    if Trait.STORES_WORK not in launcher.traits:
        return
    names = dict.fromkeys(name for cell in cells for name in masked_names(cell.config))
    if names:
        raise ConfigurationError(
            f"`{name}` must come from the environment under this launcher, got a literal text, which it would store; "
            f"write {name}='${{oc.env:NAME}}'."
            for name in names
        )


def _call_in_process(launcher: CellLauncher, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function` in another process, so that the driver never imports torch."""
    ending = call_in_process(launcher.engine, function, *arguments)
    if isinstance(ending.answer, Returned):
        return ending.answer.value
    reason = ending.answer.message if ending.answer else f"the process ended with exit code {ending.exit_code}"
    raise RunManagerError(f"The checks before the first run failed: {reason}")


def _distinct(values: Sequence[Any]) -> list[Any]:
    return [value for index, value in enumerate(values) if value not in values[:index]]


_RUN_BYTES = 40 * 2**20
"""Private memory of a run's process, forked from the server: 40 to 90 MB with the built-in models and datasets."""

_WORKER_BYTES = 24 * 2**20
"""Private memory of a loader worker: 1,000 of them took 23 GB, a single one of a small run 6 to 31 MB."""

_LOADERS = 2  # for training and for validation; their workers exist at the same time
_MIN_WORKER_LIMIT = 32
_WORKERS_PER_CORE = 4


def check_host_capacity(
    launcher: CellLauncher, batches: Iterable[Sequence[Config]], *, take_turns: bool = False
) -> None:
    """Raise `ConfigurationError` if the runs at once have too many loader workers or need too much memory.

    `batches`: the cells of each call of the launcher. If they `take_turns`, a whole batch runs at once.
    """
    free_bytes, place = free_memory(), launcher.place
    faults: list[str] = []
    for configs in batches:
        at_once = len(configs) if take_turns else min(place.at_once, len(configs))
        found = _worker_faults(configs, at_once, place) + [
            line for config in configs for line in _dataset_faults(config, free_bytes)
        ]
        faults += found or _memory_faults(configs, at_once, place.free_bytes)
    if faults:
        raise ConfigurationError(faults)


def _worker_faults(batch: Sequence[Config], at_once: int, place: Place) -> list[str]:
    limit = max(_MIN_WORKER_LIMIT, _WORKERS_PER_CORE * place.cores)
    num_workers = sum(heapq.nlargest(at_once, (each.num_workers for each in batch)))
    if num_workers <= limit:
        return []
    cores = f"{place.cores} core{'' if place.cores == 1 else 's'}"
    why = f"the larger of {_MIN_WORKER_LIMIT} and {_WORKERS_PER_CORE} for each of {cores}"
    got = f"{num_workers:,} in {at_once:,} run{'' if at_once == 1 else 's'} at once"
    way_out = "lower `num_workers`" + (" or `hydra.launcher.workers`" if at_once > 1 else "")
    return [f"`num_workers` of the runs at once must sum to at most {limit}, {why}, got {got}; {way_out}."]


def _memory_faults(batch: Sequence[Config], at_once: int, free_bytes: int | None) -> list[str]:
    needed = sum(heapq.nlargest(at_once, map(_least_bytes, batch)))
    if free_bytes is None or needed <= free_bytes:
        return []
    runs, way_out = "A run", "lower `num_workers` or the size of its dataset"
    if at_once > 1:
        runs, way_out = f"{at_once:,} runs at once", "lower `hydra.launcher.workers`"
    return [f"{runs} must fit the free memory, {format_gib(free_bytes)}, got at least {format_gib(needed)}; {way_out}."]


def _least_bytes(config: Config) -> int:
    return _RUN_BYTES + _LOADERS * config.num_workers * _WORKER_BYTES + _dataset_bytes(config)


def _dataset_faults(config: Config, free_bytes: int) -> list[str]:
    """Faults of datasets too large for this host, where the checks before the first run load them."""
    needed = _dataset_bytes(config)
    if needed <= free_bytes:
        return []
    sizes = {name: getattr(config.dataset, name, None) for name in ("size", "val_size", "holdout", "in_shape")}
    got = ", ".join(f"{name}={value}" for name, value in sizes.items() if value is not None)
    rule = f"fit the free memory, {format_gib(free_bytes)}"
    return [fault("dataset", rule, f"at least {format_gib(needed)} with {got}", "lower `dataset.size`")]


def _dataset_bytes(config: Config) -> int:
    return config.dataset.min_bytes() if isinstance(config.dataset, DatasetOptions) else 0  # unknown for a custom one
