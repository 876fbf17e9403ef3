"""Inference after training: the latency of single calls by batch size, on the timeline of the network's device.

A call is waited for before the next one begins, as a service that answers one request at a time does. The samples are
on the device before, so that their transfer is in no latency.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from runmanager.errors import UsageError
from runmanager.records.run.run_record import InferenceRecord
from runmanager.tracking.device.devices import peak_memory, reset_peak_memory
from runmanager.tracking.timing.timer import Clock, clock_for
from runmanager.tracking.torch_internals import tree_leaves, tree_map_only
from runmanager.validation import fault

_WARMUP_SHARE = 0.2  # of the seconds
_WARMUP_CALLS, _LEAST_CALLS = 3, 20


def measure_inference(
    network: torch.nn.Module,
    example: Any,
    batch_sizes: Sequence[int],
    *,
    seconds: float,
    device: torch.device,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[InferenceRecord]:
    """Call a network in `inference_mode` for about `seconds` with batches of each size; return quantiles over calls.

    The first calls, for a fifth of the time, do not count. `example` has at least one sample along the first dimension
    of its tensors, which are repeated to fill a batch. A tuple or list holds the positional arguments of the call, a
    mapping the named ones. No further size is begun once `is_stopped` returns True. Raises `UsageError` for bad
    arguments.
    """
    sizes = _checked(batch_sizes, seconds)
    if not any(isinstance(each, torch.Tensor) and each.dim() for each in tree_leaves(example)):
        raise UsageError(fault("example", "hold a tensor with samples along its first dimension", type(example)))
    was_training, clock = network.training, clock_for(device)
    network.eval()
    try:
        with torch.inference_mode():
            return [
                _measured(network, _batch(example, size, device), size, seconds, device, clock)
                for size in sizes
                if not is_stopped()
            ]
    finally:
        network.train(was_training)


def _checked(batch_sizes: Sequence[int], seconds: float) -> list[int]:
    sizes = list(dict.fromkeys(batch_sizes))
    if not sizes or not all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in sizes):
        raise UsageError(fault("batch_sizes", "be whole numbers above 0", f"{batch_sizes}", "as in (1, 32)"))
    if not 0 < seconds < float("inf"):
        raise UsageError(fault("seconds", "be a number above 0", f"{seconds}", "1.0 is the default"))
    return sizes


def _batch(example: Any, size: int, device: torch.device) -> Any:
    """Return the example on the device with `size` samples."""

    def filled(value: torch.Tensor) -> torch.Tensor:
        moved = value.to(device)
        return moved[torch.arange(size, device=device) % len(value)] if value.dim() else moved

    return tree_map_only(torch.Tensor, filled, example)


def _measured(
    network: torch.nn.Module, batch: Any, size: int, seconds: float, device: torch.device, clock: Clock
) -> InferenceRecord:
    call = _call(network, batch)
    _until(seconds * _WARMUP_SHARE, _WARMUP_CALLS, partial(_timed, call, clock))
    reset_peak_memory(device)
    latencies = _until(seconds * (1 - _WARMUP_SHARE), _LEAST_CALLS, partial(_timed, call, clock))
    p50, p90, p99 = (float(each) for each in np.quantile(latencies, (0.5, 0.9, 0.99)))
    return InferenceRecord(
        batch_size=size,
        latency_p50_seconds=p50,
        latency_p90_seconds=p90,
        latency_p99_seconds=p99,
        inference_samples_per_second=size * len(latencies) / sum(latencies),
        peak_memory_bytes=None if device.type == "cpu" else peak_memory(device),  # that of a process never falls
        num_calls=len(latencies),
    )


def _call(network: torch.nn.Module, batch: Any) -> Callable[[], object]:
    if isinstance(batch, Mapping):
        return lambda: network(**batch)
    if isinstance(batch, tuple | list):
        return lambda: network(*batch)
    return lambda: network(batch)


def _timed(call: Callable[[], object], clock: Clock) -> float:
    begin = clock.mark()
    call()
    end = clock.mark()
    clock.synchronize()
    seconds = clock.seconds(begin, end)
    for mark in (begin, end):
        clock.release(mark)
    return seconds


def _until(seconds: float, least: int, timed: Callable[[], float]) -> list[float]:
    """Return the seconds of calls until they have taken that long together, and `least` were made."""
    found, began = [timed()], time.perf_counter()
    while len(found) < least or time.perf_counter() - began < seconds:
        found.append(timed())
    return found
