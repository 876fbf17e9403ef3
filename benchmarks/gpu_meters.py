"""How a GPU's meters behave, which the documents assume: `python -m benchmarks.gpu_meters`.

The steps of the counter of energy, what a reading costs, whether the list of processes has this one, and how the clock
rises from rest.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import torch

from benchmarks.rows import heading_lines, table_line
from runmanager.tracking.monitoring.device_meter import DeviceMeter, open_meter

__all__ = ["step_seconds"]

_SECONDS = 3.0
_SIDE = 4096


def step_seconds(read: Callable[[], float | None], *, until: float, now: Callable[[], float]) -> list[float]:
    """Return how long each whole step of a counter took, read as often as possible `until` a moment."""
    last, changes = read(), []
    while (at := now()) < until:
        if (value := read()) != last:
            last = value
            changes.append(at)
    return [later - earlier for earlier, later in itertools.pairwise(changes)]


def _clock_after_rest(meter: DeviceMeter, device: torch.device) -> Iterator[tuple[float, float]]:
    """Let the GPU rest for a second, then work; yield the seconds of work, and the clock in MHz."""
    matrix = torch.rand(_SIDE, _SIDE, device=device)
    torch.cuda.synchronize(device)
    time.sleep(1.0)
    began = time.monotonic()
    while (passed := time.monotonic() - began) < 0.5:
        yield passed, (meter.read(frozenset()).clock_hertz or 0.0) / 1e6
        torch.mm(matrix, matrix)
        torch.cuda.synchronize(device)


def _rows(meter: DeviceMeter, device: torch.device) -> Iterator[Sequence[str]]:
    steps = step_seconds(meter.energy.joules, until=time.monotonic() + _SECONDS, now=time.monotonic)
    middle = f"{median(steps) * 1e3:.3g} ms, at most {max(steps) * 1e3:.3g} ms" if steps else "none seen"
    yield "a step of the counter of energy", middle
    began = time.perf_counter()
    for _ in range(100):
        meter.read(frozenset())
    yield "a reading of the meters", f"{(time.perf_counter() - began) * 1e4:.3g} us"
    reading = meter.read(frozenset({os.getpid()}))
    seen = {False: "this process alone", True: "others too", None: "unknown"}[reading.has_others]
    yield "processes on the GPU", seen
    clocks = list(_clock_after_rest(meter, device))
    top = max(clock for _, clock in clocks)
    settled = next(passed for passed, clock in clocks if clock >= 0.95 * top)
    yield (
        "the clock after a second of rest",
        f"{clocks[0][1]:,.0f} MHz, then {top:,.0f} MHz within {settled * 1e3:.0f} ms",
    )


def main() -> None:
    """Print the table."""
    device = torch.device("cuda", 0)
    torch.zeros(1, device=device)
    meter = open_meter(device)
    if meter is None:
        raise SystemExit("error: the GPU must have meters, got none; install nvidia-ml-py.")
    print("\n".join([*heading_lines(("what", "measured")), *map(table_line, _rows(meter, device))]))


if __name__ == "__main__":
    main()
