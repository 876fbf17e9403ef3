"""`runmanager doctor --calibrate`: measures and stores the peak rates of this machine's devices."""

import os
from collections.abc import Sequence

from runmanager.cli.machine_checks import Level, load_check
from runmanager.cli.printing import console, print_rendered, print_text
from runmanager.errors import UsageError
from runmanager.records.files.paths import device_peaks_file
from runmanager.records.host.device_peaks import DevicePeaks, save_device_peaks
from runmanager.records.host.process import usable_cores

__all__ = ["calibrate", "peak_rows"]

SECONDS = 2.0
"""Measuring time of each device, and on CPU of each thread count."""


def calibrate(*, threads: int | None = None) -> int:
    """Measure every accelerator, and the CPU with `threads` or with each thread count that runs are likely to use.

    Raises `UsageError` for fewer threads than one, or without a folder for the result.
    """
    path = device_peaks_file()
    if path is None:
        raise UsageError("The cache must have a folder, got a user without a home; set XDG_CACHE_HOME.")
    if threads is not None and threads < 1:
        raise UsageError(f"`--threads` must be at least 1, got {threads}.")
    load = load_check(os.getloadavg()[0], usable_cores())
    if load.level is not Level.OK:
        print_text(f"warning: {load.finding}: measured rates may be too low; calibrate on an idle machine\n")
    measured = _measure(threads)
    save_device_peaks(path, measured)
    _show(measured)
    print_text(f"\nBest of many rounds. Stored in {path}; new runs are compared with it.\n")
    return 0


def _measure(threads: int | None) -> list[DevicePeaks]:
    import torch

    from runmanager.tracking.monitoring import calibration

    counts = calibration.thread_counts(usable_cores()) if threads is None else [threads]
    found = [calibration.calibrate(torch.device("cpu"), seconds=SECONDS, threads=count) for count in counts]
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        assert accelerator is not None
        devices = [torch.device(accelerator.type, index) for index in range(torch.accelerator.device_count())]
        found += [calibration.calibrate(device, seconds=SECONDS) for device in devices]
    return found


def peak_rows(peaks: DevicePeaks) -> list[tuple[str, str]]:
    """Return the name of each measured rate and its value with the unit."""
    rows = [(f"matrix product, {name}", f"{rate / 1e9:,.1f} GFLOP/s") for name, rate in peaks.flops_per_second.items()]
    if peaks.copy_bytes_per_second is not None:
        rows.append(("copy, read and written", f"{peaks.copy_bytes_per_second / 1e9:,.1f} GB/s"))
    if peaks.transfer_bytes_per_second is not None:
        rows.append(("transfer from the host", f"{peaks.transfer_bytes_per_second / 1e9:,.1f} GB/s"))
    if peaks.dispatch_seconds is not None:
        rows.append(("one operation dispatched", f"{peaks.dispatch_seconds * 1e6:,.2f} µs"))
    return rows


def _show(measured: Sequence[DevicePeaks]) -> None:
    from rich.table import Table

    table = Table("device", "threads", "what", "at most", box=None, pad_edge=False)
    table.columns[3].justify = "right"
    for peaks in measured:
        threads = "" if peaks.threads is None else str(peaks.threads)
        for index, row in enumerate(peak_rows(peaks)):
            table.add_row(*((peaks.device_name, threads) if index == 0 else ("", "")), *row)
    print_rendered(console(), table)
