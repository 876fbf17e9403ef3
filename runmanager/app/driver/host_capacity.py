"""Checks that the host has the cores and the memory for the runs at once, made before the first run.

They use lower bounds: a rejected sweep could not run, and an accepted one may still need too much.
"""

import heapq
from collections.abc import Iterable, Sequence

from runmanager.app.compose.schema import Config
from runmanager.errors import ConfigurationError
from runmanager.launching.launcher import CellLauncher, Place
from runmanager.records.host.limits import format_gib, free_memory
from runmanager.training.options.dataset import DatasetOptions
from runmanager.validation import fault

__all__ = ["check_host_capacity"]

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
