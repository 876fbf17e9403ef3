"""`runmanager doctor --calibrate`: measures what the devices of this machine can do at most, and keeps it."""

import os
from collections.abc import Sequence

import typer

from runmanager.cli.machine_checks import Level, load_check
from runmanager.errors import UsageError
from runmanager.records.files.paths import device_peaks_file
from runmanager.records.host.device_peaks import DevicePeaks, save_device_peaks
from runmanager.records.host.process import usable_cores

__all__ = ["calibrate", "rows_of"]

SECONDS = 2.0
"""How long each device, and on CPU each thread count, is measured."""


def calibrate(*, threads: int | None = None) -> int:
    """Measure the CPU, with `threads` or with each count that runs are likely to have, and every accelerator.

    Raises `UsageError` for fewer threads than one, or where there is nowhere to keep what was measured.
    """
    path = device_peaks_file()
    if path is None:
        raise UsageError("The cache must have a folder, got a user without a home; set XDG_CACHE_HOME.")
    if threads is not None and threads < 1:
        raise UsageError(f"`--threads` must be at least 1, got {threads}.")
    load = load_check(os.getloadavg()[0], usable_cores())
    if load.level is not Level.OK:
        typer.echo(f"warning: {load.finding}: what is measured now may be too low; calibrate on a quiet machine")
    measured = _measure(threads)
    save_device_peaks(path, measured)
    _show(measured)
    typer.echo(f"\nBest of many rounds. Kept in {path}; runs that begin from now on are held against it.")
    return 0


def _measure(threads: int | None) -> list[DevicePeaks]:
    import torch

    from runmanager.tracking.environment import calibration

    counts = calibration.thread_counts(usable_cores()) if threads is None else [threads]
    found = [calibration.calibrate(torch.device("cpu"), seconds=SECONDS, threads=count) for count in counts]
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        assert accelerator is not None
        devices = [torch.device(accelerator.type, index) for index in range(torch.accelerator.device_count())]
        found += [calibration.calibrate(device, seconds=SECONDS) for device in devices]
    return found


def rows_of(ceilings: DevicePeaks) -> list[tuple[str, str]]:
    """What was measured and how much it is, with its unit."""
    rows = [
        (f"matrix product, {name}", f"{rate / 1e9:,.1f} GFLOP/s") for name, rate in ceilings.flops_per_second.items()
    ]
    if ceilings.copy_bytes_per_second is not None:
        rows.append(("copy, read and written", f"{ceilings.copy_bytes_per_second / 1e9:,.1f} GB/s"))
    if ceilings.transfer_bytes_per_second is not None:
        rows.append(("transfer from the host", f"{ceilings.transfer_bytes_per_second / 1e9:,.1f} GB/s"))
    if ceilings.dispatch_seconds is not None:
        rows.append(("one operation dispatched", f"{ceilings.dispatch_seconds * 1e6:,.2f} µs"))
    return rows


def _show(measured: Sequence[DevicePeaks]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("device", "threads", "what", "at most", box=None, pad_edge=False)
    table.columns[3].justify = "right"
    for ceilings in measured:
        threads = "" if ceilings.threads is None else str(ceilings.threads)
        for at, row in enumerate(rows_of(ceilings)):
            table.add_row(*((ceilings.device_name, threads) if at == 0 else ("", "")), *row)
    Console(highlight=False).print(table)
