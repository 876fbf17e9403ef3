"""Checks of `runmanager doctor` on PyTorch: matching builds, working devices, TensorBoard."""

import importlib
import importlib.metadata
import os
import shutil
import warnings
from pathlib import Path

from runmanager.cli.machine_checks import Check, Level
from runmanager.text import message_line, pluralize

__all__ = ["torch_checks"]

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
