"""Checks of `runmanager doctor` on PyTorch: matching builds, working devices, TensorBoard."""

import importlib
import importlib.metadata
import os
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path

from runmanager.cli.machine_checks import Check, Level, load_check
from runmanager.cli.printing import console, print_rendered, print_text
from runmanager.errors import UsageError
from runmanager.records.files.paths import device_peaks_file
from runmanager.records.host.gpus import DevicePeaks, save_device_peaks
from runmanager.records.host.process import usable_cores
from runmanager.text import message_line, pluralize

_SAME_INDEX = (
    "install both in one command and from one index: pip install --force-reinstall torch torchvision "
    "(with one --index-url for a CPU or another CUDA build)"
)


def torch_checks() -> list[Check]:
    """Run every check that imports torch. If the import fails, one check reports that instead."""
    with warnings.catch_warnings(record=True) as caught:
        # PyTorch warns about a driver that is too old: the warning is shown in the check of the device.
        warnings.simplefilter("always")
        try:
            torch = importlib.import_module("torch")
        except Exception as error:
            finding = f"cannot be imported: {message_line(error)}"
            return [Check("torch", Level.ERROR, finding, "pip install torch torchvision"), tensorboard_check()]
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
        threads = torch.get_num_threads()
        version = f"{torch.__version__}, built with {built}, {pluralize(threads, 'thread')}"
        checks = [torch_check(version), torchvision_check(torch.__version__)]
        devices = device_checks()
        cuda_warnings = [str(warning.message) for warning in caught if "CUDA" in str(warning.message)]
    return [
        *checks,
        *(devices or [no_device_check(torch.version.cuda, cuda_warnings)]),
        tensorboard_check(),
        checksum_check(),
    ]


def torch_check(version: str) -> Check:
    """Report the version of torch, and whether it is newer than those that were tested: a note, not a fault."""
    from runmanager.tracking.torch_internals import version_notes

    return Check("torch", Level.OK, "; ".join((version, *version_notes())))


def torchvision_check(torch_version: str) -> Check:
    """Check that torchvision can be imported, which fails with a torch from another index."""
    try:
        version = importlib.metadata.version("torchvision")
    except importlib.metadata.PackageNotFoundError:
        finding = "not installed: real image datasets and torchvision's models cannot be used"
        return Check("torchvision", Level.WARNING, finding, _SAME_INDEX)
    try:
        importlib.import_module("torchvision")
    except Exception as error:
        finding = f"torchvision {version} does not match torch {torch_version}: {message_line(error)}"
        return Check("torchvision", Level.ERROR, finding, _SAME_INDEX)
    return Check("torchvision", Level.OK, f"{version}, matches torch {torch_version}")


def device_checks() -> list[Check]:
    """Check each accelerator that PyTorch sees with a small sum."""
    import torch

    if not torch.accelerator.is_available():
        return []
    found = torch.accelerator.current_accelerator()
    kind = found.type if found is not None else "accelerator"
    return [_device_check(f"{kind}:{index}") for index in range(torch.accelerator.device_count())]


def _device_check(name: str) -> Check:
    import torch

    from runmanager.tracking.device.devices import device_facts

    device = torch.device(name)
    try:
        facts = device_facts(device, cpu_model=None)
        answer = float(torch.ones(8, device=device).sum())
    except RuntimeError as error:
        cure = "install the torch build for this device and its driver; until then use `device=cpu`"
        return Check(name, Level.ERROR, f"does not work: {message_line(error)}", cure)
    if answer != 8:
        return Check(name, Level.ERROR, f"sums eight ones to {answer:g}", "use another device: this one is broken")
    parts = [facts["device_name"]]
    if device.type == "cuda":
        parts.append(f"compute capability {facts['compute_capability']}")
        parts.append(f"driver {facts['driver'] or 'of unknown version'}")
        parts.append(f"{torch.cuda.get_device_properties(device).total_memory / (1 << 30):.0f} GiB")
    return Check(name, Level.OK, ", ".join(parts))


def no_device_check(
    cuda: str | None, cuda_warnings: list[str], *, driver_file: Path = Path("/proc/driver/nvidia/version")
) -> Check:
    """Report why no accelerator was found: none installed, hidden, or not supported by this torch."""
    none = "PyTorch sees none: cells with `device=cpu` run, cells with other devices are skipped"
    if not driver_file.exists() and shutil.which("nvidia-smi") is None:
        if cuda is not None:
            none = f"{none}; this torch is built for CUDA {cuda}, but no NVIDIA driver is installed"
        return Check("accelerator", Level.OK, none)
    finding = "an NVIDIA driver is installed, but PyTorch sees no CUDA device"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if cuda is None:
        return Check("accelerator", Level.WARNING, f"{finding}: this torch is a CPU build", _SAME_INDEX)
    if hidden is not None:
        finding = f"{finding}: CUDA_VISIBLE_DEVICES is '{hidden}'"
        return Check("accelerator", Level.WARNING, finding, "unset CUDA_VISIBLE_DEVICES")
    if cuda_warnings:
        finding = f"{finding}: {cuda_warnings[0].splitlines()[0]}"
    cure = f"update the driver, or install a torch built for an older CUDA than {cuda}"
    return Check("accelerator", Level.WARNING, finding, cure)


def tensorboard_check() -> Check:
    """Check that `runmanager tensorboard` can start."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("tensorboard.main")
        version = importlib.metadata.version("tensorboard")
    except Exception as error:
        finding = f"cannot be imported: {message_line(error)}"
        return Check("tensorboard", Level.ERROR, finding, "pip install --upgrade tensorboard")
    return Check("tensorboard", Level.OK, version)


def checksum_check() -> Check:
    """Check that event files are written at full speed."""
    import google_crc32c

    if google_crc32c.implementation == "c":
        return Check("checksums", Level.OK, "computed in C")
    finding = "computed in Python: every TensorBoard record costs several times as much"
    return Check("checksums", Level.WARNING, finding, "pip install --force-reinstall google-crc32c")


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
