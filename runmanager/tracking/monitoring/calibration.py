"""Calibration of a device: its peak rates for matrix products, copies, host transfers and operator dispatch."""

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runmanager.records.host.gpus import DevicePeaks
from runmanager.tracking.device.devices import device_facts
from runmanager.tracking.environment.environment import cpu_model
from runmanager.tracking.timing.timer import Clock, clock_for

_COPY_BYTES = 256 * 2**20  # more than any cache
_NUM_DISPATCHES = 2000
_MAX_SIDE = 16384
_MIN_PRODUCT_SECONDS = 5e-3  # from here on the launch does not dominate
_MIN_ROUNDS = 4
_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Probe:
    """One operation to time: `work` starts it without waiting for the device; `amount` is in FLOP, bytes or calls."""

    name: str
    work: Callable[[], object]
    amount: float


def calibrate(device: torch.device, *, seconds: float = 2.0, threads: int | None = None) -> DevicePeaks:
    """Measure the peak rates of `device` for about `seconds`, on CPU with `threads` threads.

    All probes are timed in rounds, and the best time of each counts: other load on the machine makes a probe slower,
    never faster. Rates that the device does not support are missing.
    """
    with _num_threads(threads if device.type == "cpu" else None):
        candidates = probes(device)
        best = best_seconds(candidates, clock_for(device), seconds=seconds)
        rates = {probe.name: probe.amount / best[probe.name] for probe in candidates}
        return DevicePeaks(
            device_name=device_facts(device, cpu_model=cpu_model())["device_name"],
            threads=torch.get_num_threads() if device.type == "cpu" else None,
            flops_per_second={name: rates[name] for name in _DTYPES if name in rates},
            copy_bytes_per_second=rates.get("copy"),
            transfer_bytes_per_second=rates.get("transfer"),
            dispatch_seconds=1 / rates["dispatch"],
            measured_at=datetime.datetime.now(datetime.UTC).isoformat(),
            torch=str(torch.__version__),
        )


def thread_counts(cores: int) -> list[int]:
    """List the thread counts to measure: those of one run, two concurrent runs, four, … on `cores` cores."""
    counts = {cores // 2**power for power in range(cores.bit_length())} | {torch.get_num_threads()}
    return sorted(counts, reverse=True)


def best_seconds(
    candidates: list[Probe], clock: Clock, *, seconds: float, now: Callable[[], float] = time.monotonic
) -> Mapping[str, float]:
    """Return the shortest time of each probe, timed in rounds until `seconds` have passed on the clock `now`."""
    until, rounds = now() + seconds, 0
    best: dict[str, float] = {}
    while rounds < _MIN_ROUNDS or now() < until:
        for probe in candidates:
            best[probe.name] = min(best.get(probe.name, float("inf")), _time(probe.work, clock))
        rounds += 1
    return best


def _time(work: Callable[[], object], clock: Clock) -> float:
    clock.synchronize()
    begin = clock.mark()
    work()
    end = clock.mark()
    clock.synchronize()
    return clock.seconds(begin, end)


def probes(device: torch.device) -> list[Probe]:
    """Create the probes that `device` supports."""
    names = ["fp32", "bf16"] if device.type == "cpu" else ["fp32", "bf16", "fp16"]
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0):
        names.insert(1, "tf32")  # earlier GPUs than Ampere compute it as fp32
    products = [_product(name, device) for name in names]
    return [*products, _copy(device), *([] if device.type == "cpu" else [_transfer(device)]), _dispatch(device)]


def _product(name: str, device: torch.device) -> Probe:
    """Create a probe of a square matrix product, 2 side³ FLOP, large enough to be timed."""
    clock, side = clock_for(device), 256
    while True:
        left = torch.rand(side, side, device=device).to(_DTYPES[name])
        right, out = torch.rand_like(left), torch.empty_like(left)

        def work(left: torch.Tensor = left, right: torch.Tensor = right, out: torch.Tensor = out) -> None:
            with _fp32_precision(name, device):
                torch.mm(left, right, out=out)

        probe = Probe(name, work, 2.0 * side**3)
        # The first product of a size selects a kernel, and any one may be slowed by other load.
        if side >= _MAX_SIDE or best_seconds([probe], clock, seconds=0)[name] >= _MIN_PRODUCT_SECONDS:
            return probe
        side *= 2


def _copy(device: torch.device) -> Probe:
    source = torch.ones(_COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return Probe("copy", lambda: target.copy_(source), 2.0 * _COPY_BYTES)


def _transfer(device: torch.device) -> Probe:
    source = torch.ones(_COPY_BYTES, dtype=torch.uint8)
    if device.type in ("cuda", "xpu"):
        source = source.pin_memory()
    target = torch.zeros(_COPY_BYTES, dtype=torch.uint8, device=device)
    return Probe("transfer", lambda: target.copy_(source, non_blocking=True), float(_COPY_BYTES))


def _dispatch(device: torch.device) -> Probe:
    number = torch.zeros(1, device=device)

    def work() -> None:
        for _ in range(_NUM_DISPATCHES):
            number.add_(1)

    return Probe("dispatch", work, float(_NUM_DISPATCHES))


@contextlib.contextmanager
def _fp32_precision(name: str, device: torch.device) -> Iterator[None]:
    """Compute CUDA's float32 products in full precision (`fp32`) or rounded to TF32 (`tf32`) within the body."""
    if device.type != "cuda" or name not in ("fp32", "tf32"):
        yield
        return
    backend: Any = torch.backends.cuda.matmul
    earlier = backend.fp32_precision
    backend.fp32_precision = "tf32" if name == "tf32" else "ieee"
    try:
        yield
    finally:
        backend.fp32_precision = earlier


@contextlib.contextmanager
def _num_threads(count: int | None) -> Iterator[None]:
    earlier = torch.get_num_threads()
    torch.set_num_threads(count or earlier)
    try:
        yield
    finally:
        torch.set_num_threads(earlier)
